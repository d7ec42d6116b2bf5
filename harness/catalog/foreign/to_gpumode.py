"""Write problems and solutions as GPU MODE's task folders.

Trusted side. Nothing is executed. `reference.py` is the problem's file as it is, with an adapter below it. `eval.py`
and `utils.py` come from a checkout of reference-kernels.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import yaml

from harness.catalog.foreign.shared import NotConvertible, parsed, top_level_names
from harness.catalog.sizes import constants
from harness.core.choices import PrecisionClass
from harness.core.problem import Problem, Solution

_TOLERANCES = {PrecisionClass.FP32: 1e-4}
"""Relative and absolute tolerance of KernelBench's rule; 1e-2 for all coarser classes."""

_TASK_TYPES = """\
from typing import TypeVar

import torch

input_t = TypeVar("input_t", bound=tuple[torch.Tensor, ...])
output_t = TypeVar("output_t", bound=torch.Tensor)
"""

_REFERENCE = '''

# ---- Adapter to GPU MODE ----

import torch
from task import input_t, output_t
from utils import make_match_reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
models = {{}}


def new_model(kind, arguments=get_init_inputs):
    """Construct the reference or a submission, under the same seed."""
    torch.manual_seed(0)
    return kind(*arguments()).to(DEVICE)


def generate_input(seed: int, draw=get_inputs, **sizes) -> input_t:
    """Draw inputs at these sizes. Models are constructed anew."""
    globals().update(sizes)
    models.clear()
    torch.manual_seed(seed)
    with torch.device(DEVICE):
        return tuple(draw())


@torch.no_grad()
def ref_kernel(data: input_t, kind=Model) -> output_t:
    if "reference" not in models:
        models["reference"] = new_model(kind)
    return models["reference"](*data)


check_implementation = make_match_reference(ref_kernel, rtol={tolerance}, atol={tolerance})
'''

_CUSTOM = """

from reference import models, new_model


@torch.no_grad()
def custom_kernel(data):
    if "submission" not in models:
        models["submission"] = new_model(ModelNew)
    return models["submission"](*data)
"""


def export_task(problem: Problem) -> dict[str, str]:
    """Return the files of a problem's task folder by name.

    Benchmarks are the workloads, `full` first; the test is `small`, if it is declared.

    Raises:
        NotConvertible: Changing a size would not change the constants computed from it, the file has names of a task,
            or the problem asks for a backward.
    """
    if problem.backward:
        raise NotConvertible("it asks for a backward, which a task does not call")
    if own := top_level_names(parsed(problem.source)) & {"ref_kernel", "generate_input", "new_model", "models"}:
        raise NotConvertible(f"its file has the name {', '.join(sorted(own))}, which a task's functions have")
    names = [name for name in problem.workloads if name != "full"]
    fixed = _derived_from(problem, {size for name in names for size in problem.workloads[name].sizes})
    if fixed:
        raise NotConvertible(f"its constants {', '.join(sorted(fixed))} follow from sizes of its workloads")
    specs = {name: _spec(problem, name) for name in problem.workloads}
    tests = [specs["small"]] if "small" in specs else [specs["full"]]
    tolerance = _TOLERANCES.get(problem.precision, 1e-2)
    task: dict[str, Any] = {
        "files": [
            {"name": "submission.py", "source": "@SUBMISSION@"},
            *({"name": name, "source": name} for name in ("task.py", "reference.py")),
            *({"name": name, "source": f"../{name}"} for name in ("utils.py", "eval.py")),
        ],
        "lang": "py",
        "description": problem.notes or ast.get_docstring(parsed(problem.source)) or problem.name,
        "config": {"main": "eval.py"},
        "tests": tests,
        "benchmarks": [spec for name, spec in specs.items() if name != "small"],
        "test_timeout": 180,
        "benchmark_timeout": 180,
        "ranked_timeout": 420,
        "ranking_by": "geom",
    }
    return {
        "task.yml": f"# name: {problem.name}\n\n" + yaml.safe_dump(task, sort_keys=False, width=120),
        "task.py": _TASK_TYPES,
        "reference.py": problem.source.rstrip() + _REFERENCE.format(tolerance=tolerance),
    }


def export_submission(solution: Solution) -> str:
    """Return a solution as a `submission.py`: its file, with `custom_kernel` below it.

    Raises:
        NotConvertible: The file defines no `ModelNew`, or a `custom_kernel` of its own.
    """
    names = top_level_names(parsed(solution.source))
    if "ModelNew" not in names:
        raise NotConvertible("it defines no ModelNew")
    if "custom_kernel" in names:
        raise NotConvertible("it defines a custom_kernel of its own: take its file as it is")
    return f"{solution.source.rstrip()}\n\nimport torch{_CUSTOM}"


def _spec(problem: Problem, workload: str) -> dict[str, Any]:
    """Return the sizes of a workload: each size that any workload changes."""
    own = constants(parsed(problem.source))
    changed = {name: own[name] for held in problem.workloads.values() for name in held.sizes}
    sizes = {**changed, **problem.workloads[workload].sizes}
    return {**{name: list(v) if isinstance(v, tuple) else v for name, v in sizes.items()}, "seed": 4242}


def _derived_from(problem: Problem, sizes: Sequence[str] | set[str]) -> set[str]:
    """Return the constants whose expressions use one of `sizes`."""
    found: set[str] = set()
    for node in parsed(problem.source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or node.value is None:
            continue
        if any(isinstance(item, ast.Name) and item.id in sizes for item in ast.walk(node.value)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {item.id for target in targets for item in ast.walk(target) if isinstance(item, ast.Name)}
    return found

"""Write problems and solutions in the formats of flashinfer-bench.

Trusted side. Nothing is executed: the caller knows the shapes. A problem that came from a definition becomes that
definition again.
"""

from __future__ import annotations

import ast
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.catalog.foreign.flashinfer import (
    DEFINITION,
    REFERENCE_FOLLOWS,
    KernelDefinition,
    check_definition,
    scalar_constant,
)
from harness.catalog.foreign.shared import NotConvertible, foreign_part, load_json, parsed, top_level_names, words
from harness.catalog.sizes import UNKNOWN, apply_sizes, constants
from harness.core.problem import Problem, Solution

Leaf = tuple[str, str, tuple[int, ...]]
"""Path (`inputs[0]`), dtype and shape of a tensor."""

_DTYPES = {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8", "bool"}
_NAMESPACE = uuid.UUID("6f2b0c3e-6a43-5d0e-9d0c-2f5a3c1f7b11")

_RUN = '''

@torch.no_grad()
def {name}({arguments}):
    """Construct the model once, under a fixed seed, and call it."""
    global _model
    if "_model" not in globals():
        torch.manual_seed(0)
        _model = {model}({init}).to({first}.device)
    return _model({arguments})
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedProblem:
    """A definition with its workloads by the names of the problem's workloads."""

    definition: Mapping[str, Any]
    workloads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The definition's name."""
        return str(self.definition["name"])

    def trace(self, workload: str) -> dict[str, Any]:
        """Return the line of a workload without a solution."""
        return {
            "definition": self.name,
            "workload": dict(self.workloads[workload]),
            "solution": None,
            "evaluation": None,
        }


def is_imported(problem: Problem) -> bool:
    """Tell whether a problem came from a definition."""
    return f"\n{DEFINITION}" in foreign_part(problem.source)[1] or foreign_part(problem.source)[1].startswith(
        DEFINITION
    )


def export_problem(
    problem: Problem, shapes: Mapping[str, tuple[Sequence[Leaf], Sequence[Leaf]]], *, has_state: bool
) -> ExportedProblem:
    """Return a problem as a definition.

    Args:
        problem: A readable problem.
        shapes: Inputs and outputs at each workload; `full` must be among them, unless the problem was imported.
        has_state: Whether the model has parameters or buffers.

    Raises:
        NotConvertible: A definition can't describe the problem.
    """
    text, adapter = foreign_part(problem.source)
    line = next((line for line in adapter.split("\n") if line.startswith(DEFINITION)), None)
    if line is not None:
        data = load_json(line.removeprefix(DEFINITION), "the adapter's definition")
        reference = text.partition(f"{REFERENCE_FOLLOWS}\n\n")[2].removesuffix("\n")
        definition = check_definition({**data, "reference": reference})
        return ExportedProblem(definition=definition.data, workloads=_workloads_of(problem, definition))
    return _new_definition(problem, shapes, has_state=has_state)


def _workloads_of(problem: Problem, definition: KernelDefinition) -> dict[str, dict[str, Any]]:
    specs = definition.inputs
    if any("int" in spec["dtype"] and spec.get("shape") is not None for spec in specs.values()):
        return {}  # integers with a meaning can't be random there
    found = {}
    for name, workload in problem.workloads.items():
        known = constants(apply_sizes(parsed(problem.source), workload.sizes))
        axes = {axis: known.get(constant) for axis, constant in definition.axes.items()}
        varying = {axis: value for axis, value in axes.items() if definition.data["axes"][axis].get("type") == "var"}
        if all(type(value) is int for value in varying.values()):
            inputs = {
                item: {"type": "random"}
                if spec.get("shape") is not None
                else {"type": "scalar", "value": known.get(scalar_constant(item, definition))}
                for item, spec in specs.items()
                if item in definition.arguments
            }
            found[name] = {"axes": varying, "inputs": inputs, "uuid": _uuid(problem, name)}
    return found


def _uuid(problem: Problem, workload: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{problem.digest}/{workload}"))


def _new_definition(
    problem: Problem, shapes: Mapping[str, tuple[Sequence[Leaf], Sequence[Leaf]]], *, has_state: bool
) -> ExportedProblem:
    if problem.backward:
        raise NotConvertible("it asks for a backward, which a definition does not describe")
    tree = parsed(problem.source)
    if "run" in top_level_names(tree):
        raise NotConvertible("its file has a name run, which a definition's function has")
    names = list(shapes) if _is_free(problem, tree) and not has_state else ["full"]
    inputs, outputs = shapes["full"]
    arguments = _arguments(tree)
    if [path for path, _, _ in inputs] != [f"inputs[{number}]" for number in range(len(arguments))]:
        raise NotConvertible("its inputs are not one tensor for each argument of forward")
    if wrong := sorted({dtype for _, dtype, _ in (*inputs, *outputs)} - _DTYPES):
        raise NotConvertible(f"a definition has no type {', '.join(wrong)}")
    if any("float" not in dtype for _, dtype, _ in inputs):
        raise NotConvertible("it has inputs of integers, which a workload draws from a range of its own")
    places = [path.removeprefix("output") for path, _, _ in outputs]
    if places not in ([""], [f"[{number}]" for number in range(len(places))]):
        raise NotConvertible("its outputs are neither one tensor nor a tuple of tensors")
    known = {name: constants(apply_sizes(parsed(problem.source), problem.workloads[name].sizes)) for name in names}
    axes: dict[tuple[int, ...], str] = {}
    specs: list[dict[str, Any]] = []
    for side, leaves in enumerate((inputs, outputs)):
        for number, (_, dtype, shape) in enumerate(leaves):
            every = [shapes[name][side][number][2] for name in names]
            extents = [tuple(sizes[i] for sizes in every) for i in range(len(shape))]
            specs.append({"shape": [_axis(extent, axes, known, names) for extent in extents], "dtype": dtype})
    described = {
        axis: {"type": "var"} if len(set(extent)) > 1 else {"type": "const", "value": extent[0]}
        for extent, axis in axes.items()
    }
    labels = ["output"] if places == [""] else [f"output{number}" for number in range(len(places))]
    labels = [f"{label}_" if label in arguments else label for label in labels]
    run = _RUN.format(
        name="run", arguments=", ".join(arguments), model="Model", init="*get_init_inputs()", first=arguments[0]
    )
    definition = {
        "name": words(f"{problem.id}_{problem.name}"),
        "op_type": problem.id.partition("/")[0],
        "description": problem.notes or (ast.get_docstring(tree) or problem.name),
        "axes": described,
        "inputs": dict(zip(arguments, specs, strict=False)),
        "outputs": dict(zip(labels, specs[len(arguments) :], strict=True)),
        "reference": f"{problem.source.rstrip()}\n\nimport torch\n{run}",
    }
    workloads = {
        name: {
            "axes": {axis: extent[number] for extent, axis in axes.items() if len(set(extent)) > 1},
            "inputs": {argument: {"type": "random"} for argument in arguments},
            "uuid": _uuid(problem, name),
        }
        for number, name in enumerate(names)
    }
    return ExportedProblem(definition=definition, workloads=workloads)


def _axis(
    extent: tuple[int, ...],
    axes: dict[tuple[int, ...], str],
    known: Mapping[str, Mapping[str, Any]],
    names: Sequence[str],
) -> str:
    """Return the axis of an extent, named as the only constant with its values.

    An extent has a value at each workload.
    """
    if extent not in axes:
        same = [
            constant
            for constant in known["full"]
            if all(known[name].get(constant, UNKNOWN) == value for name, value in zip(names, extent, strict=True))
        ]
        name = same[0] if len(same) == 1 else f"d{extent[0]}"
        axes[extent] = name if name not in axes.values() else f"{name}_{len(axes)}"
    return axes[extent]


def _is_free(problem: Problem, tree: ast.Module) -> bool:
    """Tell whether only `get_inputs` depends on the sizes that workloads change."""
    full = constants(tree)
    changed = {
        name
        for workload in problem.workloads.values()
        for name, value in constants(apply_sizes(parsed(problem.source), workload.sizes)).items()
        if value is UNKNOWN or value != full.get(name)
    }
    used: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name != "get_inputs":
            used |= {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return not changed & used


def _arguments(tree: ast.Module, model: str = "Model") -> list[str]:
    """Return the names of the arguments of a model's `forward`."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == model:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward" and len(item.args.args) > 1:
                    return [argument.arg for argument in item.args.args[1:]]
    raise NotConvertible(f"its class {model} has no forward with named arguments")


def export_solution(solution: Solution, problem: Problem, exported: ExportedProblem) -> dict[str, Any]:
    """Return a solution as one of flashinfer-bench, with the function `harness_run`.

    Raises:
        NotConvertible: The file defines no `ModelNew` with a `forward`.
    """
    arguments = _arguments(parsed(solution.source), "ModelNew")
    init = next(
        ast.get_source_segment(problem.source, node) or ""
        for node in parsed(problem.source).body
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs"
    )
    needed = "" if init.split()[-2:] == ["return", "[]"] else "*get_init_inputs()"
    if needed:  # it may use sizes of the problem's file
        sizes = {name: value for name, value in constants(parsed(problem.source)).items() if value is not UNKNOWN}
        used = {node.id for node in ast.walk(parsed(init)) if isinstance(node, ast.Name)}
        lines = [f"{name} = {value!r}\n" for name, value in sizes.items() if name in used]
        init = f"\n\n{''.join(lines)}\n\n{init}\n"
    run = _RUN.format(
        name="harness_run", arguments=", ".join(arguments), model="ModelNew", init=needed, first=arguments[0]
    )
    text = f"{solution.source.rstrip()}\n\nimport torch\n{init if needed else ''}{run}"
    return {
        "name": words(solution.label.removesuffix(".py")),
        "definition": exported.name,
        "author": solution.author,
        "description": f"Solution {solution.label} of problem {problem.id}.",
        "spec": {
            "language": "python",
            "target_hardware": ["cuda"],
            "entry_point": "main.py::harness_run",
            "dependencies": ["torch"],
            "destination_passing_style": False,
        },
        "sources": [{"path": "main.py", "content": text}],
    }


def as_json(value: Any) -> str:
    """Return a value as the text of a JSON file."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def as_line(value: Any) -> str:
    """Return a value as a line of a `.jsonl` file."""
    return json.dumps(value, allow_nan=False) + "\n"

"""Prompts that ask a model for a solution, from Jinja templates.

Trusted side. A prompt shows what the problem's author published: the source and the precision class.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

import harness
from harness.core.config import ConfigError
from harness.core.problem import Problem
from harness.devices.gpu_specs import DATASHEETS, datasheet

TEMPLATES = ("zero_shot", "one_example", "kernelbench")
"""Templates of a first prompt; `kernelbench` has the order of KernelBench's prompt: task, example, problem, demand."""

EXAMPLES = (
    ("level1/19_relu.py", "optimised/level1/19_wide_loads.py"),
    ("level1/1_square_matmul.py", "naive/level1/1_thread_per_element.py"),
)
"""Shipped problems with a solution: the first is the example, the second if the first is asked for."""


def prompt(problem: Problem, *, template: str = "zero_shot", gpu: str | None = None) -> str:
    """Return the prompt that asks for a solution.

    Args:
        problem: The problem.
        template: One of `TEMPLATES`.
        gpu: GPU whose facts (from its datasheet) are stated, or None.

    Raises:
        ConfigError: There is no such template or GPU.
    """
    if template not in TEMPLATES:
        raise ConfigError(f"no template {template!r:.60}; choose one of {', '.join(TEMPLATES)}")
    peaks = None
    if gpu is not None and (peaks := datasheet(gpu)) is None:
        known = ", ".join(item.name for _, item in DATASHEETS)
        raise ConfigError(f"unknown GPU {gpu!r:.60}; name one of {known}")
    example = None
    if template != "zero_shot":
        example = next(pair for pair in map(_example, EXAMPLES) if pair[0].strip() != problem.source.strip())
    values = {"problem": problem, "gpu": peaks, "example": example}
    return _templates().get_template(f"{template}.md.j2").render(values)


def feedback_prompt(feedback: str) -> str:
    """Return the prompt of a further turn.

    Args:
        feedback: Feedback on the last solution (`Result.feedback`).
    """
    return _templates().get_template("feedback.md.j2").render(feedback=feedback)


def _example(names: tuple[str, str]) -> tuple[str, str]:
    root = Path(harness.__file__).parent / "catalog" / "shipped"
    problem, solution = names
    return (root / "problems" / problem).read_text("utf-8"), (root / "examples" / solution).read_text("utf-8")


@cache
def _templates() -> Environment:
    loader = PackageLoader("harness.api.environments", "templates")
    return Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)

"""Render problems: a table of all, a page about one, JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.core.problem import Problem, Workload
from harness.report import format as show
from harness.report.details import details
from harness.report.table import table_of

if TYPE_CHECKING:
    from harness.referee.problem.roofline import SpeedOfLight
    from harness.referee.problem.shapes import ProblemShapes, ShapeLeaf

SHORT_TYPES = {"float32": "", "bfloat16": "bf16 ", "float16": "f16 ", "float64": "f64 "}
"""dtype -> prefix of a shape; other dtypes keep their name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costed:
    """Costs of one workload: `sketch` and `light`, or why they are unknown."""

    workload: Workload
    sketch: ProblemShapes | None
    light: SpeedOfLight | None
    gpu: str
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        light = None if self.light is None else {"gpu": self.gpu, **self.light.to_json()}
        costs = None if self.sketch is None else self.sketch.to_json()
        return {
            "workload": self.workload.name,
            "derived": self.workload.derived,
            "costs": costs,
            "speed_of_light": light,
            "reason": self.reason,
        }


def table(problems: Sequence[Problem], costed: Mapping[str, Costed]) -> Table:
    """Render problems as rows, with their costs or their input variants."""
    costs = ["inputs", "bytes", "flops", "bound", "speed of light"] if costed else ["input variants"]
    rows = []
    for item in problems:
        known = costed.get(item.id)
        precision = item.precision if known is None else known.workload.precision or item.precision
        middle = [", ".join(("own", *item.rules.variants))] if known is None else _cost_cells(known)
        rows.append([item.id, item.name, precision.value, *middle, ", ".join(item.workloads)])
    cells = ([show.line(cell) for cell in row] for row in rows)
    return table_of(["problem", "name", "class", *costs, "workloads"], cells, right=("bytes", "flops"))


def _cost_cells(known: Costed) -> list[str]:
    if known.sketch is None or known.light is None:
        return [known.reason or "unknown", *[show.ABSENT] * 4]
    flops = show.count(known.sketch.flops, "flop") if known.sketch.flops else show.ABSENT
    inputs = " + ".join(_shape(leaf) for leaf in known.sketch.inputs) or "none"
    return [
        inputs,
        show.size(known.sketch.total_bytes),
        flops,
        known.light.bound,
        show.duration(known.light.sol_time_s),
    ]


def _shape(leaf: ShapeLeaf) -> str:
    kind = SHORT_TYPES.get(leaf.dtype, f"{leaf.dtype} ")
    return kind + ("x".join(str(extent) for extent in leaf.shape) or "scalar")


def page(problem: Problem, costed: Sequence[Costed], secret_sizes: str) -> RenderableType:
    """Render one problem: declarations, workloads with shapes and costs, source.

    `secret_sizes` says what `--shapes` draws from.
    """
    facts: dict[str, Any] = {
        "precision": problem.precision.value,
        **({"backward": ", ".join(problem.backward)} if problem.backward else {}),
        "input_variants": ["own", *problem.rules.variants],
        "secret_sizes": secret_sizes,
        "file": str(problem.path),
        "digest": problem.digest,
        "notes": problem.notes or None,
    }
    parts: list[RenderableType] = [
        Text(f"{show.line(problem.id)}  {show.line(problem.name)}", style="bold"),
        Padding(details(facts), (0, 0, 0, 2)),
    ]
    for known in costed:
        parts.append(Text(f"\nworkload {show.line(known.workload.title)}", style="bold"))
        parts.append(Padding(details(_workload_facts(problem, known)), (0, 0, 0, 2)))
    return Group(*parts, Text("\nsource", style="bold"), Text(show.block(problem.source)))


def as_yaml(problem: Problem, sizes: Mapping[str, Any]) -> str:
    """Return the entry of `workloads.yaml` that declares a problem's workload `small`."""
    number = problem.id.rpartition("/")[2]
    values = ", ".join(f"{_yaml_name(name)}: {json.dumps(value)}" for name, value in sizes.items())
    return f"  {number}:\n    workloads:\n      small: {{{values}}}"


def _yaml_name(name: str) -> str:
    """Quote a name that YAML would read as another value, such as `no`."""
    return json.dumps(name) if name.lower() in ("y", "n", "yes", "no", "on", "off", "true", "false", "null") else name


def _workload_facts(problem: Problem, known: Costed) -> dict[str, Any]:
    facts: dict[str, Any] = {"sizes": ", ".join(f"{k} = {v}" for k, v in known.workload.sizes.items())}
    facts["sizes"] = facts["sizes"] or "as in the file"
    if known.workload.derived:
        facts["in workloads.yaml"] = as_yaml(problem, known.workload.sizes)
    if known.workload.precision not in (None, problem.precision):
        facts["precision"] = str(known.workload.precision)
    if known.sketch is None or known.light is None:
        return {**facts, "costs": known.reason or "unknown"}
    for name, leaves in (("inputs", known.sketch.inputs), ("outputs", known.sketch.outputs)):
        facts[name] = ", ".join(f"{leaf.path}: {leaf.dtype} {list(leaf.shape)}" for leaf in leaves)
    facts["input_bytes"] = known.sketch.input_bytes
    facts["parameter_bytes"] = known.sketch.parameter_bytes or None
    facts["output_bytes"] = known.sketch.output_bytes
    by = "declared" if "bytes" in known.sketch.declared else "each input, parameter and output once"
    facts["least traffic"] = f"{show.size(known.sketch.total_bytes)} ({by})"
    by = "declared" if "flops" in known.sketch.declared else "matrix products, convolutions, attention of the reference"
    facts["flops"] = f"{show.count(known.sketch.flops, 'flop')} ({by})"
    by = {"measured": "from measured peak rates", "datasheet": "from its datasheet"}[known.light.peaks_source]
    light_s = show.duration(known.light.sol_time_s)
    facts["speed_of_light"] = f"{light_s} on {known.gpu}, {by}, bound by {known.light.bound}"
    return facts


def as_json(problem: Problem, costed: Sequence[Costed]) -> dict[str, Any]:
    """Return a problem as a JSON object."""
    return {
        "id": problem.id,
        "name": problem.name,
        "file": str(problem.path),
        "precision": problem.precision.value,
        "workloads": {name: dict(held.sizes) for name, held in problem.workloads.items()},
        "precisions": {name: (held.precision or problem.precision).value for name, held in problem.workloads.items()},
        "variants": ["own", *problem.rules.variants],
        "backward": list(problem.backward),
        "digest": problem.digest,
        "notes": problem.notes,
        "costs": [known.to_json() for known in costed],
    }

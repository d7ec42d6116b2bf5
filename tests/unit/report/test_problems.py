"""Problems as tables, pages and JSON, from values made up here."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console, RenderableType

from harness.core.choices import PrecisionClass
from harness.core.problem import Problem, Workload
from harness.referee.problem.roofline import SpeedOfLight
from harness.referee.problem.shapes import ProblemShapes, ShapeLeaf
from harness.report import problems as pages

FULL, HALF = Workload(name="full"), Workload(name="half", sizes={"dtype": "bfloat16"}, precision=PrecisionClass.BF16)
PROBLEM = Problem(
    id="level1/16",
    name="matmul",
    path=Path("16_matmul.py"),
    source="N = [1]\n",
    digest="d",
    workloads={"full": FULL, "half": HALF},
)
SKETCH = ProblemShapes(
    inputs=(
        ShapeLeaf(path="inputs[0]", dtype="float32", shape=(5, 7)),
        ShapeLeaf(path="inputs[1]", dtype="int64", shape=(3,)),
    ),
    outputs=(ShapeLeaf(path="output", dtype="float32", shape=()),),
    input_bytes=164,
    parameter_bytes=0,
    output_bytes=4,
    total_bytes=168,
    flops=12_000,
    declared=("flops",),
)
LIGHT = SpeedOfLight(
    sol_time_s=2.5e-6, bound="compute", memory_s=1e-9, compute_s=2.5e-6, launch_s=None, peaks_source="datasheet"
)
KNOWN = pages.Costed(workload=FULL, sketch=SKETCH, light=LIGHT, gpu="H200 SXM")
UNKNOWN = pages.Costed(
    workload=HALF, sketch=None, light=None, gpu="H200 SXM", reason="forward can't run [/b] without data"
)


def text_of(part: RenderableType) -> str:
    console = Console(width=300, force_terminal=False)
    with console.capture() as held:
        console.print(part)
    return held.get()


def test_a_row_has_shapes_costs_and_bound() -> None:
    shown = text_of(pages.table([PROBLEM], {"level1/16": KNOWN}))
    for part in (
        "level1/16",
        "5x7 + int64 3",
        "168 B",
        "12.0 kflop",
        "compute",
        "2.50 µs",
        "full, half",
    ):
        assert part in shown


def test_a_problem_whose_costs_are_not_known_says_why_in_its_row() -> None:
    shown = text_of(pages.table([PROBLEM], {"level1/16": UNKNOWN}))
    assert "forward can't run [/b] without data" in shown
    assert "bf16" in shown


def test_without_costs_the_table_has_names_only() -> None:
    shown = text_of(pages.table([PROBLEM], {}))
    assert "own, zero_mean" in shown
    assert "speed of light" not in shown


def test_a_page_has_every_workload_and_the_source() -> None:
    shown = text_of(pages.page(PROBLEM, [KNOWN, UNKNOWN], "N: 2 to 32"))
    for part in (
        "N: 2 to 32",
        "workload full",
        "as in the file",
        "12.0 kflop (declared)",
        "2.50 µs on H200 SXM, from its datasheet, bound by compute",
        "N = [1]",
    ):
        assert part in shown
    assert "dtype = bfloat16" in shown
    assert "forward can't run [/b] without data" in shown


def test_json_has_costs_or_the_reason() -> None:
    value = json.loads(json.dumps(pages.as_json(PROBLEM, [KNOWN, UNKNOWN]), allow_nan=False))
    assert value["precisions"] == {"full": "fp32", "half": "bf16"}
    known, unknown = value["costs"]
    assert known["costs"]["inputs"][0] == {"path": "inputs[0]", "dtype": "float32", "shape": [5, 7]}
    assert known["speed_of_light"]["gpu"] == "H200 SXM"
    assert unknown["costs"] is None
    assert "without data" in unknown["reason"]

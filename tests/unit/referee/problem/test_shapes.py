"""What a call takes and costs, found without data: against real calls, and for code that can't run that way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.core.choices import PrecisionClass
from harness.core.problem import Costs, Problem, Workload
from harness.devices.gpu_specs import datasheet
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.shapes import ShapeLeaf, sketch

HEAD = "import torch\nimport torch.nn as nn\n"
LINEAR = (
    HEAD
    + """
rows = 7
wide = 11
class Model(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.linear = nn.Linear(wide, 5)
    def forward(self, x, index):
        return {"y": self.linear(x), "n": index.sum()}
def get_inputs():
    return [torch.rand(rows, wide), torch.randint(0, 3, (rows,))]
def get_init_inputs():
    return [wide]
"""
)
VALUES = (
    HEAD
    + """
class Model(nn.Module):
    def forward(self, x):
        return x * (2 if x.sum().item() > 0 else 3)
def get_inputs():
    return [torch.rand(4)]
def get_init_inputs():
    return []
"""
)
FULL = Workload(name="full")


def problem(source: str) -> Problem:
    return Problem(id="level1/1", name="x", path=Path("1_x.py"), source=source, digest="d")


def test_shapes_bytes_and_flops_are_those_of_a_real_call() -> None:
    made = sketch(problem(LINEAR), FULL)
    assert made.inputs == (
        ShapeLeaf(path="inputs[0]", dtype="float32", shape=(7, 11)),
        ShapeLeaf(path="inputs[1]", dtype="int64", shape=(7,)),
    )
    assert {leaf.path: (leaf.dtype, leaf.shape) for leaf in made.outputs} == {
        "output['y']": ("float32", (7, 5)),
        "output['n']": ("int64", ()),
    }
    assert made.input_bytes == 4 * 77 + 8 * 7
    assert made.parameter_bytes == 4 * (55 + 5)
    assert made.output_bytes == 4 * 35 + 8
    assert made.total_bytes == made.input_bytes + made.parameter_bytes + made.output_bytes
    assert made.flops == 2 * 7 * 11 * 5
    assert made.declared == ()


def test_sizes_of_the_workload_and_declarations_count() -> None:
    declares = replace(problem(LINEAR), costs=Costs(flops="10 * rows", bytes="wide"))
    made = sketch(declares, Workload(name="small", sizes={"rows": 3}))
    assert made.inputs[0].shape == (3, 11)
    assert (made.flops, made.total_bytes, made.declared) == (30, 11, ("flops", "bytes"))


def test_nothing_is_allocated_and_the_generators_of_tensors_are_left_alone() -> None:
    huge = LINEAR.replace("rows = 7", "rows = 10**12")
    before = torch.get_default_dtype()
    assert sketch(problem(huge), FULL).input_bytes == 10**12 * (44 + 8)
    assert torch.get_default_dtype() is before
    assert type(torch.rand(2)) is torch.Tensor, "fake tensors end with the sketch"


def test_a_workloads_own_class_decides_the_rate() -> None:
    peaks = datasheet("NVIDIA H200")
    assert peaks is not None
    source = (
        LINEAR.replace("rows = 7", "rows = 4096").replace("wide = 11", "wide = 65536").replace("wide, 5", "wide, 4096")
    )
    held = problem(source)
    half = Workload(name="half", precision=PrecisionClass.BF16)
    made = sketch(held, FULL)
    exact, coarse = made.light(held, FULL, peaks), made.light(held, half, peaks)
    assert exact.bound == "compute"
    assert exact.sol_time_s == pytest.approx(made.flops / peaks.flops_per_s["fp32"])
    assert coarse.compute_s == pytest.approx(made.flops / peaks.flops_per_s["bf16"])


def test_shapes_that_do_not_fit_are_one_error_and_no_log(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProblemError, match="forward can't run without data"):
        sketch(problem(LINEAR.replace("torch.rand(rows, wide)", "torch.rand(rows, wide + 1)")), FULL)
    assert capfd.readouterr().err == ""


def test_code_that_looks_at_values_says_so() -> None:
    with pytest.raises(ProblemError, match="forward can't run without data"):
        sketch(problem(VALUES), FULL)
    with pytest.raises(ProblemError, match="get_inputs can't run without data"):
        sketch(problem(VALUES.replace("[torch.rand(4)]", "[torch.rand(int(torch.rand(1).item() * 9))]")), FULL)


def test_inputs_that_are_no_list_are_told_as_a_run_tells_them() -> None:
    with pytest.raises(ProblemError, match=r"^get_inputs returns a Tensor, not a list$"):
        sketch(problem(LINEAR.replace("return [torch.rand(rows, wide)", "return torch.rand(rows, wide); [torch")), FULL)

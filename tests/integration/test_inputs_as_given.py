"""Inputs as problems give them, in whole evaluations on the host device: strides, devices, destinations, shapes."""

from __future__ import annotations

import pytest

from harness.core.record import Record
from harness.core.status import Status
from tests.support.judged_on_host import judged_files


def problem(forward: str, inputs: str) -> str:
    return f"""
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""


def solution(forward: str) -> str:
    return f"""
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        {forward}
"""


PROBLEMS = {
    "1_transposed": problem("return x * y", "torch.randn(50, 40).t(), torch.randn(40, 50)"),
    "2_with_gaps": problem("return x + y", "torch.randn(40, 100)[:, ::2], torch.randn(40, 50)"),
    "3_expanded": problem("return x * y", "torch.randn(40, 1).expand(40, 50), torch.randn(40, 50)"),
    "4_destination": problem("y.copy_(x.exp())", "torch.randn(40, 50), torch.empty(40, 50)"),
    "5_reshapes": problem("x.unsqueeze_(1); return x * y", "torch.randn(40, 50), torch.randn(50)"),
    "6_on_a_gpu": problem(
        "return x + y + torch.ones(50, device='cuda')", "torch.randn(40, 50, device='cuda'), torch.randn(40, 50).cuda()"
    ),
    "7_masked": problem(
        "return torch.softmax(x.masked_fill(y < -1.5, float('-inf')), 1)", "torch.randn(400, 2), torch.randn(400, 2)"
    ),
}
IGNORES = "x = torch.as_strided(x, x.shape, (x.shape[1], 1)); "
SOLUTIONS = {
    "1_keeps": solution("assert x.stride() == (1, 40); return y * x.contiguous()"),
    "1_ignores": solution(f"{IGNORES}return x * y"),
    "2_keeps": solution("assert x.stride() == (100, 2); return y + x.contiguous()"),
    "2_ignores": solution(f"{IGNORES}return x + y"),
    "3_keeps": solution("assert x.stride() == (1, 0); return y * x.contiguous()"),
    "4_writes": solution("torch.exp(x, out=y)"),
    "4_forgets": solution("x.exp()"),
    "4_returns": solution("return x.exp()"),
    "5_reshapes": solution("x.unsqueeze_(1); return y * x"),
    "5_leaves": solution("return y * x.unsqueeze(1)"),
    "1_reshapes": solution("z = x * y; x.unsqueeze_(0); return z"),
    "6_adds": solution("return y + x + 1"),
    "7_masks": solution("z = torch.where(y < -1.5, -float('inf'), x); return torch.softmax(z, 1)"),
    "7_zero": solution("return torch.softmax(x.masked_fill(y < -1.5, float('-inf')), 1).nan_to_num(0.0)"),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    return judged_files(tmp_path_factory.mktemp("given"), PROBLEMS, SOLUTIONS)


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("1_keeps", Status.passed, ""),
        ("1_ignores", Status.wrong_value, "values wrong"),
        ("2_keeps", Status.passed, ""),
        ("2_ignores", Status.wrong_value, "values wrong"),
        ("3_keeps", Status.passed, ""),
        ("4_writes", Status.passed, ""),
        ("4_forgets", Status.wrong_state, "inputs[1]"),
        ("4_returns", Status.wrong_structure, "expected None"),
        ("5_reshapes", Status.passed, ""),
        ("5_leaves", Status.wrong_state, "the reference changes the shape of inputs[0] to [40, 1, 50]"),
        ("1_reshapes", Status.mutated_input, "changed the shape of its input inputs[0] to [1, 40, 50]"),
        ("6_adds", Status.passed, ""),
        ("7_masks", Status.passed, ""),
        ("7_zero", Status.non_finite, "NaN"),
    ],
)
def test_solutions_get_inputs_as_the_problem_gives_them(
    records: dict[str, Record], name: str, status: Status, words: str
) -> None:
    record = records[name]
    assert record.status is status, record.reason
    assert words in record.reason


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("4_writes", "inputs[1]: a call writes its results there"),
        ("5_reshapes", "inputs[0]: a call changes its shape to [40, 1, 50]"),
        ("6_adds", "the problem names the device cuda; its tensors are on the CPU here"),
    ],
)
def test_what_is_unusual_about_inputs_is_recorded(records: dict[str, Record], name: str, note: str) -> None:
    assert records[name].evidence["input_notes"] == [note]


def test_nothing_is_noted_of_usual_inputs(records: dict[str, Record]) -> None:
    assert "input_notes" not in records["1_keeps"].evidence

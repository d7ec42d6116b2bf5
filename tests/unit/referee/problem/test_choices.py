"""Indices are judged by the values that they point to, by range, repeats and, if the sort is stable, order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.status import Failure, Status
from harness.referee.correctness.verifier import CallVerdict, Verifier
from harness.referee.problem.choices import Choices, IndexChoice
from harness.referee.problem.workspace import Workspace
from harness.referee.soundness.degenerate import taken_for_right
from tests.support.answers import CALLS, answer, workspace_of

ROWS, COLUMNS, K = 16, 61, 7

_PROBLEM = f"""
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        {{body}}
def get_inputs():
    return [{{inputs}}]
def get_init_inputs():
    return []
ROWS, COLUMNS = {ROWS}, {COLUMNS}
"""

TIED = "torch.floor(torch.randn(ROWS, COLUMNS) * 2) / 2"
"""About 12 different values: most rows have several of each."""

Change = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Makes indices from the input and the reference's indices."""


def other_way(largest: bool) -> Change:
    """Choose the last of equal values instead of the first."""

    def change(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        places = torch.sort(x.flip(1), dim=1, descending=largest, stable=True)[1]
        return (x.shape[1] - 1 - places)[:, : index.shape[1]] if index.dim() > 1 else x.shape[1] - 1 - places[:, 0]

    return change


@contextmanager
def judged(body: str, change: Change, inputs: str = TIED, required: str = "fp32") -> Iterator[list[CallVerdict]]:
    """Judge the reference's own answers, with the last output changed."""
    workspace = workspace_of(_PROBLEM.format(body=body, inputs=inputs), DeviceKind.HOST)
    try:
        yield verdicts(workspace, change, required)
    finally:
        workspace.close()


def verdicts(workspace: Workspace, change: Change, required: str = "fp32") -> list[CallVerdict]:
    planned, done = answer(workspace, ("own",) * CALLS)
    for held in workspace.sets:
        index = workspace.tensor(held.outputs[-1])
        index.copy_(change(workspace.tensor(held.inputs[0]).clone(), index.clone()))
    verifier = Verifier(workspace, required=PrecisionClass(required), coerce=False)
    return list(verifier.check(planned, done, with_reference=True))


def failure_of(body: str, change: Change, inputs: str = TIED, required: str = "fp32") -> Failure | None:
    with judged(body, change, inputs, required) as findings:
        return next((finding.failure for finding in findings if finding.failure), None)


TOPK = f"return torch.topk(x, {K}, dim=1)[1]"
RIGHT: dict[str, tuple[str, Change]] = {
    "argmax": ("return torch.argmax(x, dim=1)", other_way(True)),
    "argmin": ("return torch.argmin(x, dim=1)", other_way(False)),
    "max": ("return tuple(torch.max(x, dim=1))", other_way(True)),
    "topk": (TOPK, other_way(True)),
    "topk with values": (f"return tuple(torch.topk(x, {K}, dim=1))", other_way(True)),
    "smallest": (f"return torch.topk(x, {K}, dim=1, largest=False)[1]", other_way(False)),
    "sort": ("return tuple(torch.sort(x, dim=1))", other_way(False)),
    "argsort": ("return torch.argsort(x, dim=1, descending=True)", other_way(True)),
    "kthvalue": (
        f"return torch.kthvalue(x, {K}, dim=1)[1]",
        lambda x, index: other_way(False)(x, index.new_empty(*x.shape))[:, K - 1],
    ),
    "median": (
        "return torch.median(x, dim=1)[1]",
        lambda x, index: other_way(False)(x, index.new_empty(*x.shape))[:, (COLUMNS - 1) // 2],
    ),
    "mode": ("return torch.mode(x, dim=1)[1]", lambda x, index: (x == x.gather(1, index[:, None])).int().argmax(1)),
    "argmax of everything": (
        "return torch.argmax(x.clamp(max=1.0))",
        lambda x, index: (x >= 1.0).view(-1).nonzero()[-1, 0],
    ),
    "stable sort": ("return torch.sort(x, dim=1, stable=True)[1]", lambda x, index: index),
    "a maximum of integers": ("return torch.argmax((2 * x).int(), dim=1)", other_way(True)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_ties_may_be_resolved_either_way(name: str) -> None:
    body, change = RIGHT[name]
    with judged(body, change) as findings:
        assert [finding.failure for finding in findings] == [None] * CALLS


@pytest.mark.parametrize("name", [name for name in RIGHT if name != "stable sort"])
def test_the_other_way_is_another_index(name: str) -> None:
    """Else the test above would show nothing."""
    body, change = RIGHT[name]
    workspace = workspace_of(_PROBLEM.format(body=body, inputs=TIED), DeviceKind.HOST)
    try:
        workspace.draw(0)
        index = workspace.answer(0).leaves[-1]
        assert not torch.equal(change(workspace.tensor(workspace.sets[0].inputs[0]), index), index)
    finally:
        workspace.close()


def put(place: int, value: int) -> Change:
    def change(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        index[3, place] = value
        return index

    return change


def repeat_a_tie(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Point twice to the first of equal values: all values are right."""
    values = x.gather(1, index)
    for column in range(1, index.shape[1]):
        same = values[:, column] == values[:, column - 1]
        index[:, column] = torch.where(same, index[:, column - 1], index[:, column])
    return index


def a_maximum_a_partition(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    best, places = torch.nn.functional.pad(x, (0, 3), value=-torch.inf).view(ROWS, 16, 4).max(dim=2)
    kept = best.topk(K, dim=1)[1]
    return (places + 4 * torch.arange(16)).gather(1, kept)


WRONG: dict[str, tuple[Change, str]] = {
    "off by one": (lambda x, index: (index + 1) % COLUMNS, "it points to"),
    "repeated": (repeat_a_tie, "repeated, first at ["),
    "257 times": (lambda x, index: index[:, :1].expand_as(index).clone(), f"{ROWS * (K - 1)} repeated"),
    "beyond the end": (put(2, COLUMNS), f"1 out of range (0 to {COLUMNS - 1}), first at [3, 2]: {COLUMNS}"),
    "negative": (lambda x, index: index - COLUMNS, f"{ROWS * K} out of range"),
    "far out": (put(0, 2**62), "1 out of range"),
    "in reverse": (lambda x, index: index.flip(1), "topk chose about"),
    "the smallest": (lambda x, index: x.topk(K, dim=1, largest=False)[1], "it points to"),
    "a maximum a partition": (a_maximum_a_partition, "it points to"),
    "zeros": (lambda x, index: torch.zeros_like(index), "repeated"),
    "the first places": (lambda x, index: torch.arange(K).expand(ROWS, K), "it points to"),
    "never written": (lambda x, index: torch.full_like(index, -1), f"{ROWS * K} were never written"),
    "places of another row": (lambda x, index: index.roll(1, 0), "it points to"),
}


@pytest.mark.parametrize("required", ["fp32", "bf16"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_indices_are_refused_with_the_reason(name: str, required: str) -> None:
    change, words = WRONG[name]
    failure = failure_of(TOPK, change, required=required)
    assert failure is not None
    assert failure.status is Status.wrong_value
    assert words in failure.reason
    assert "indices wrong" in failure.reason


def test_a_stable_sort_must_keep_the_order_of_equal_values() -> None:
    failure = failure_of("return torch.argsort(x, dim=1, stable=True)", other_way(False))
    assert failure is not None
    assert failure.status is Status.wrong_value
    assert "before an equal value that comes first in the input (the sort is stable)" in failure.reason


def test_near_ties_of_computed_values_are_right_within_the_class() -> None:
    """Columns differ by a part in 1e8 after the product: float32 can't tell them apart."""
    body = "return torch.argmax(x @ torch.ones(61, 8).to(x) * (1.0 + 1e-8 * torch.arange(8).to(x)) + 1, dim=1)"
    inputs = "torch.rand(ROWS, COLUMNS)"
    assert failure_of(body, lambda x, index: torch.full_like(index, 3), inputs) is None
    coarse = body.replace("1e-8", "1e-4")
    assert failure_of(coarse, lambda x, index: index, inputs) is None
    assert failure_of(coarse, lambda x, index: torch.full_like(index, 3), inputs) is not None


def test_keys_rounded_to_bf16_are_right_for_bf16_only() -> None:
    def rounded(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().float().topk(K, dim=1)[1]

    inputs = "torch.randn(ROWS, COLUMNS) + 3"
    assert failure_of(TOPK, rounded, inputs, "bf16") is None
    failure = failure_of(TOPK, rounded, inputs, "fp32")
    assert failure is not None
    assert failure.status is Status.wrong_value


def test_the_record_of_a_pass_holds_the_limits() -> None:
    with judged(TOPK, other_way(True)) as findings:
        for finding in findings:
            assert finding.judgement is not None
            (output,) = finding.judgement.evidence["outputs"]
            assert output["index_of"] == "topk"
            assert output["dtype"] == "int64"
            assert output["rms_error"] == 0.0
            assert output["limits"]["rms"] > 0.0


@pytest.mark.parametrize(
    "body",
    [
        "return torch.argmax(x, dim=1) + 1",
        "index = torch.argmax(x, dim=1); index.add_(1); return index",
        "index = torch.argmax(x, dim=1)\n        x.neg_()\n        return index",
        "return torch.argmax(x, dim=1).to(torch.int32)",
        "return torch.argsort(x, dim=1)[:, :5]",
        "return torch.bucketize(x, torch.linspace(-2, 2, 9).to(x))",
        "with torch.inference_mode():\n            return torch.argmax(x + 1, dim=1).add_(1)",
    ],
)
def test_other_integers_are_compared_exactly(body: str) -> None:
    assert failure_of(body, lambda x, index: index) is None

    def next_one(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        index.view(-1)[0] += 1
        return index

    failure = failure_of(body, next_one)
    assert failure is not None
    assert f"of {ROWS * (COLUMNS if 'bucketize' in body else 5 if 'argsort' in body else 1)} values" in failure.reason


def test_not_a_number_must_be_pointed_to_where_the_reference_does() -> None:
    """Also an index that breaks a rule there is wrong."""
    inputs = "torch.where(torch.arange(COLUMNS) == 5, torch.nan, torch.randn(ROWS, COLUMNS))"
    body = "return torch.sort(x, dim=1)[0][:, :3], torch.argmax(x, dim=1)"
    assert failure_of(body, lambda x, index: index, inputs) is None
    for value in (4, -1, COLUMNS):
        failure = failure_of(body, lambda x, index, value=value: torch.full_like(index, value), inputs)  # type: ignore[misc]
        assert failure is not None
        assert failure.status is Status.wrong_value


def test_a_problem_whose_values_all_tie_is_degenerate() -> None:
    source = _PROBLEM.format(body="return torch.argmax(x, dim=1)", inputs="torch.ones(ROWS, COLUMNS)")
    workspace = workspace_of(source, DeviceKind.HOST)
    try:
        assert "zeros" in taken_for_right(workspace, PrecisionClass.FP32)
    finally:
        workspace.close()


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
def test_every_dimension_and_layout(dim: int) -> None:
    x = torch.randn(5, 9, 4).permute(2, 0, 1)
    with Choices() as choices:
        outputs = [x.argmax(dim), x.argmax(dim, keepdim=True), *x.topk(2, dim=dim), x.argmin()]
    found = choices.of(outputs)
    assert list(found) == [0, 1, 3, 4]
    assert torch.equal(found[0].chosen, x.amax(dim))
    assert torch.equal(found[1].chosen, x.amax(dim, keepdim=True))
    assert torch.equal(found[3].chosen, outputs[2])
    assert torch.equal(found[4].chosen, x.min())


def test_many_repeats_of_one_index_are_all_counted() -> None:
    """A count that wraps at 256 would find none."""
    values = torch.zeros(1, 600)
    choice = IndexChoice(operator="sort", values=values, dim=1, index=torch.arange(600).view(1, 600))
    index = torch.full((1, 600), 7)
    assert choice.faults(index).startswith("599 repeated")
    assert int(choice.pointed(index).isnan().sum()) == 599


@pytest.mark.gpu
@pytest.mark.parametrize("name", RIGHT)
def test_on_a_gpu_ties_may_be_resolved_either_way(name: str) -> None:
    body, change = RIGHT[name]
    workspace = workspace_of(_PROBLEM.format(body=body, inputs=TIED), DeviceKind.CUDA)
    try:
        assert [finding.failure for finding in verdicts(workspace, change)] == [None] * CALLS
        findings = verdicts(workspace, lambda x, index: torch.full_like(index, COLUMNS * ROWS))
        assert all(finding.failure and "out of range" in finding.failure.reason for finding in findings)
    finally:
        workspace.close()

"""A call's inputs must be those that were drawn, before its truth is computed and still afterwards."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.problem import Problem, Workload
from harness.core.status import Status
from harness.devices.device import open_device
from harness.protocol.messages import BurstDone, CallClaim, CallMode, OutputClaim
from harness.protocol.tensor_tree import flatten
from harness.referee.correctness.verifier import Verifier
from harness.referee.problem.answer import Answer, Truth
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.workspace import Workspace

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return x + y
def get_inputs():
    return [torch.rand(8, 16), torch.rand(8, 16)]
def get_init_inputs():
    return []
"""


def workspace_of(source: str, kind: DeviceKind = DeviceKind.HOST) -> Workspace:
    problem = Problem(id="level1/1", name="sum", path=Path("1_sum.py"), source=source, digest=source)
    held = Workspace(problem, Workload(name="full"), open_device(kind), sets_wanted=3, secret=random.Random(1))
    for index in range(3):
        held.draw(index)
    return held


@pytest.fixture
def workspace() -> Workspace:
    return workspace_of(PROBLEM)


def counted(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sets for which the reference's own answer is asked, as they come."""
    asked: list[int] = []
    answer = workspace.answer

    def noted(index: int, changed: tuple[int, ...] = ()) -> Answer:
        asked.append(index)
        return answer(index, changed)

    monkeypatch.setattr(workspace, "answer", noted)
    return asked


def answered(workspace: Workspace, planned_calls: list[PlannedCall]) -> BurstDone:
    """What a contestant that is right says of these calls, its outputs in their places."""
    claims = []
    for planned_call in planned_calls:
        (output,) = flatten(workspace.oracle.forward(workspace.arguments(planned_call.index)))[0]
        (slot,) = workspace.sets[planned_call.index].outputs
        workspace.tensor(slot).copy_(output)
        leaf = OutputClaim(
            type="torch.Tensor", shape=slot.shape, dtype=slot.dtype, device="cuda", address=planned_call.index + 1
        )
        tree = workspace.traits.tree.to_json()
        claims.append(CallClaim(tree=tree, leaves=(leaf,), state_missing=(), device_s=0.0, window_s=0.0))
    return BurstDone(claims=tuple(claims), reports=())


TURNS = [PlannedCall(index=index, mode=CallMode.COLD) for index in (2, 0, 1)]


def statuses(workspace: Workspace) -> list[Status | None]:
    verifier = Verifier(workspace, required=PrecisionClass.FP32, coerce=False)
    findings = verifier.check(TURNS, answered(workspace, TURNS), with_reference=False)
    return [None if finding.failure is None else finding.failure.status for finding in findings]


def test_right_answers_over_inputs_left_alone_pass(workspace: Workspace) -> None:
    assert statuses(workspace) == [None, None, None]


def test_an_input_that_a_call_changed_is_found_in_its_set(workspace: Workspace) -> None:
    workspace.tensor(workspace.sets[0].inputs[1])[3, 4] += 1
    assert statuses(workspace) == [None, Status.mutated_input, None]


WHOLE = PROBLEM.replace("x + y", "(100 * (x + y)).long()")
"""With integers, which need no kernel, calls are judged together on any device."""


def change(workspace: Workspace, index: int) -> None:
    """Another input, and the answer to it, as a kernel could write them that its process has left behind."""
    workspace.tensor(workspace.sets[index].inputs[0])[0, 0] = 7.0
    (output,) = flatten(workspace.oracle.forward(workspace.arguments(index)))[0]
    workspace.tensor(workspace.sets[index].outputs[0]).copy_(output)


@pytest.mark.parametrize("source", [PROBLEM, WHOLE])
def test_an_input_that_changes_before_its_truth_is_computed_is_found(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_of(source)
    truth = workspace.truth

    def late(index: int, changed: tuple[int, ...]) -> Truth:
        if index == 1:
            change(workspace, 1)
        return truth(index, changed)

    monkeypatch.setattr(workspace, "truth", late)
    assert statuses(workspace) == [None, None, Status.mutated_input]


def test_an_input_that_changes_before_a_wrong_answer_is_looked_at_again_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second look at all inputs is behind the last truth, not behind those of the calls taken together."""
    workspace = workspace_of(WHOLE)
    truth, compare = workspace.truth, workspace.compare_inputs
    asked: list[int] = []

    def late(index: int, changed: tuple[int, ...]) -> Truth:
        asked.append(index)
        if asked.count(1) == 2:
            change(workspace, 1)
        return truth(index, changed)

    def wrong_until_then(indices: list[int]) -> torch.Tensor:
        if not asked:
            workspace.tensor(workspace.sets[1].outputs[0])[0, 0] += 1
        return compare(indices)

    monkeypatch.setattr(workspace, "truth", late)
    monkeypatch.setattr(workspace, "compare_inputs", wrong_until_then)
    assert statuses(workspace) == [None, None, Status.mutated_input]
    assert asked == [2, 0, 1, 1]


def test_indices_that_only_float32_rounding_ties_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 every row is a tie, and the first index is its maximum's; the truth's is another.

    Both point to the same value within float32's accuracy, so later calls need no answer of the reference.
    """
    workspace = workspace_of(PROBLEM.replace("x + y", "torch.argmax(1.0 + 1e-9 * x, dim=1)"))
    assert any(bool((workspace.truth(index).answer.leaves[0] != 0).any()) for index in range(3))
    asked = counted(workspace, monkeypatch)
    assert statuses(workspace) == [None, None, None]
    assert asked == [2]


def test_the_references_own_answer_is_asked_for_where_the_truth_does_not_settle_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It costs as much as the truth: the first call's tells how exact float32 is, later ones only what the truth
    leaves open."""
    workspace = workspace_of(PROBLEM.replace("x + y", "(10 * x).long()"))
    asked = counted(workspace, monkeypatch)
    assert statuses(workspace) == [None, None, None]
    assert asked == [2]


SHIFTED = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return (x + 4096) - 4096
def get_inputs():
    x = torch.rand(8, 16)
    x[3, 4] = 1.0
    return [x]
def get_init_inputs():
    return []
"""
"""Exact on zeros and ones, and on no value between them."""


def test_how_exact_the_reference_is_on_one_draw_of_stress_inputs_says_nothing_of_the_next() -> None:
    """Of one tensor's structured values, half are one-hot and half a ramp. In timed bursts they follow one another."""
    workspace = workspace_of(SHIFTED)
    for index, part in ((2, 0), (0, 1), (1, 0)):
        workspace.draw(index, "structured", part=part)
    done = answered(workspace, TURNS)
    for index in range(3):
        (x,) = workspace.tensors(workspace.sets[index].inputs)
        workspace.tensor(workspace.sets[index].outputs[0]).copy_((x + 8192) - 8192)
    verifier = Verifier(workspace, required=PrecisionClass.FP32, coerce=False)
    findings = verifier.check(TURNS, done, with_reference=False)
    exact = [all(own.max_error == 0 for own in finding.reference) for finding in findings]
    assert exact == [True, False, True]
    assert not any(finding.failure for finding in findings)
    assert len({finding.variant for finding in findings}) == 1


def test_how_exact_float32_is_on_the_first_inputs_convicts_nobody_on_others() -> None:
    """Answers on the other side of the truth than the reference's own, by so many times its distance."""
    workspace = workspace_of(SHIFTED)
    verifier = Verifier(workspace, required=PrecisionClass.FP32, coerce=False)
    workspace.tensor(workspace.sets[0].inputs[0]).fill_(1.0)
    workspace.amend(0)
    found = []
    for index, times in ((0, 0.0), (1, 2.0), (1, 9.0)):
        planned_call = PlannedCall(index=index, mode=CallMode.COLD)
        done = answered(workspace, [planned_call])
        (exact,), (own,) = workspace.truth(index).answer.leaves, workspace.answer(index).leaves
        workspace.tensor(workspace.sets[index].outputs[0]).copy_(exact - times * (own - exact))
        found += verifier.check([planned_call], done, with_reference=False)
    assert [finding.failure is None for finding in found] == [True, True, False]


@pytest.mark.parametrize("tensor", ["(100 * x).long()", "x + y"], ids=["judged together", "by itself"])
def test_a_number_beside_the_tensors_may_be_as_inexact_as_the_references(tensor: str) -> None:
    """A sum in which all cancels: what float32 leaves of it is rounding."""
    number = "float((1e4 * x).sum() - (1e4 * x.flip(0)).cumsum(1)[:, -1].sum())"
    workspace = workspace_of(PROBLEM.replace("x + y", f"{tensor}, {number}"))
    planned_call = PlannedCall(index=0, mode=CallMode.COLD)
    done = answered(workspace, [planned_call])
    truth, own = (held.tree.floats()[0][1] for held in (workspace.truth(0).answer, workspace.answer(0)))
    assert abs(own - truth) > 1e-5
    for times, right in ((0.0, True), (2.0, True), (9.0, False)):
        tree = {"format": 1, "slots": 1, "root": ["tuple", [["tensor", 0], ["float", truth - times * (own - truth)]]]}
        claims = (replace(done.claims[0], tree=tree),)
        verifier = Verifier(workspace, required=PrecisionClass.FP32, coerce=False)
        (finding,) = verifier.check([planned_call], replace(done, claims=claims), with_reference=False)
        assert (finding.failure is None) is right, times


def test_numbers_beside_the_tensors_that_are_infinite_are_matched_by_no_other() -> None:
    workspace = workspace_of(PROBLEM.replace("x + y", "x + y, float('inf')"))
    planned_call = PlannedCall(index=0, mode=CallMode.COLD)
    done = answered(workspace, [planned_call])
    for said, right in (("inf", True), ("-inf", False), (5.0, False), ("nan", False)):
        tree = {"format": 1, "slots": 1, "root": ["tuple", [["tensor", 0], ["float", said]]]}
        claims = (replace(done.claims[0], tree=tree),)
        verifier = Verifier(workspace, required=PrecisionClass.FP32, coerce=False)
        (finding,) = verifier.check([planned_call], replace(done, claims=claims), with_reference=False)
        assert (finding.failure is None) is right, said


@pytest.mark.parametrize("kind", [DeviceKind.HOST, pytest.param(DeviceKind.CUDA, marks=pytest.mark.gpu)])
def test_where_whole_inputs_do_not_fit_the_truth_is_computed_by_rows(
    kind: DeviceKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = workspace_of(PROBLEM, kind)
    whole = held.truth(0)
    device = held.device.torch_device

    def too_much(*_: object, **__: object) -> Answer:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(held.oracle, "_truth_on", too_much)
    if kind is DeviceKind.HOST:
        monkeypatch.setattr(held.oracle, "_places", lambda: [(device, True)])
    by_rows = held.truth(0)
    assert (whole.source, by_rows.source) == (f"float64 {device.type}", f"float64 {device.type}, by rows")
    assert torch.equal(whole.answer.leaves[0].cpu(), by_rows.answer.leaves[0].cpu())
    assert by_rows.answer.leaves[0].dtype is torch.float64

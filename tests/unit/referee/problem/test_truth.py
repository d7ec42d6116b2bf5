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
from harness.devices import open_device
from harness.protocol.messages import BurstDone, CallClaim, CallMode, OutputClaim
from harness.protocol.tensor_tree import flatten
from harness.referee.correctness.verifier import Verifier
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.truth import Answer, Truth
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


def bench_of(source: str) -> Workspace:
    problem = Problem(id="level1/1", name="sum", path=Path("1_sum.py"), source=source, digest=source)
    held = Workspace(
        problem, Workload(name="full"), open_device(DeviceKind.HOST), sets_wanted=3, secret=random.Random(1)
    )
    for index in range(3):
        held.draw(index)
    return held


@pytest.fixture
def bench() -> Workspace:
    return bench_of(PROBLEM)


def counted(bench: Workspace, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sets for which the reference's own answer is asked, as they come."""
    asked: list[int] = []
    answer = bench.answer

    def noted(index: int, changed: tuple[int, ...] = ()) -> Answer:
        asked.append(index)
        return answer(index, changed)

    monkeypatch.setattr(bench, "answer", noted)
    return asked


def answered(bench: Workspace, turns: list[PlannedCall]) -> BurstDone:
    """What a contestant that is right says of these calls, its outputs in their places."""
    claims = []
    for turn in turns:
        (output,) = flatten(bench.oracle.forward(bench.arguments(turn.index)))[0]
        (slot,) = bench.sets[turn.index].outputs
        bench.tensor(slot).copy_(output)
        leaf = OutputClaim(
            type="torch.Tensor", shape=slot.shape, dtype=slot.dtype, device="cuda", address=turn.index + 1
        )
        tree = bench.traits.tree.to_json()
        claims.append(CallClaim(tree=tree, leaves=(leaf,), state_missing=(), device_s=0.0, window_s=0.0))
    return BurstDone(claims=tuple(claims), reports=())


TURNS = [PlannedCall(index=index, mode=CallMode.COLD) for index in (2, 0, 1)]


def statuses(bench: Workspace) -> list[Status | None]:
    verifier = Verifier(bench, required=PrecisionClass.FP32, coerce=False)
    findings = verifier.check(TURNS, answered(bench, TURNS), with_reference=False)
    return [None if finding.failure is None else finding.failure.status for finding in findings]


def test_right_answers_over_inputs_left_alone_pass(bench: Workspace) -> None:
    assert statuses(bench) == [None, None, None]


def test_an_input_that_a_call_changed_is_found_in_its_set(bench: Workspace) -> None:
    bench.tensor(bench.sets[0].inputs[1])[3, 4] += 1
    assert statuses(bench) == [None, Status.mutated_input, None]


WHOLE = PROBLEM.replace("x + y", "(100 * (x + y)).long()")
"""With integers, which need no kernel, calls are judged together on any device."""


def change(bench: Workspace, index: int) -> None:
    """Another input, and the answer to it, as a kernel could write them that its process has left behind."""
    bench.tensor(bench.sets[index].inputs[0])[0, 0] = 7.0
    (output,) = flatten(bench.oracle.forward(bench.arguments(index)))[0]
    bench.tensor(bench.sets[index].outputs[0]).copy_(output)


@pytest.mark.parametrize("source", [PROBLEM, WHOLE])
def test_an_input_that_changes_before_its_truth_is_computed_is_found(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(source)
    truth = bench.truth

    def late(index: int, changed: tuple[int, ...]) -> Truth:
        if index == 1:
            change(bench, 1)
        return truth(index, changed)

    monkeypatch.setattr(bench, "truth", late)
    assert statuses(bench) == [None, None, Status.mutated_input]


def test_an_input_that_changes_before_a_wrong_answer_is_looked_at_again_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second look at all inputs is behind the last truth, not behind those of the calls taken together."""
    bench = bench_of(WHOLE)
    truth, compare = bench.truth, bench.compare_inputs
    asked: list[int] = []

    def late(index: int, changed: tuple[int, ...]) -> Truth:
        asked.append(index)
        if asked.count(1) == 2:
            change(bench, 1)
        return truth(index, changed)

    def wrong_until_then(indices: list[int]) -> torch.Tensor:
        if not asked:
            bench.tensor(bench.sets[1].outputs[0])[0, 0] += 1
        return compare(indices)

    monkeypatch.setattr(bench, "truth", late)
    monkeypatch.setattr(bench, "compare_inputs", wrong_until_then)
    assert statuses(bench) == [None, None, Status.mutated_input]
    assert asked == [2, 0, 1, 1]


def test_indices_that_only_float32_rounding_ties_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 every row is a tie, and the first index is its maximum's; the truth's is another."""
    bench = bench_of(PROBLEM.replace("x + y", "torch.argmax(1.0 + 1e-9 * x, dim=1)"))
    assert any(bool((bench.truth(index).answer.leaves[0] != 0).any()) for index in range(3))
    asked = counted(bench, monkeypatch)
    assert statuses(bench) == [None, None, None]
    assert sorted(set(asked)) == [0, 1, 2]


def test_the_references_own_answer_is_asked_for_where_the_truth_does_not_settle_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It costs as much as the truth: the first call's tells how exact float32 is, later ones only what the truth
    leaves open."""
    bench = bench_of(PROBLEM.replace("x + y", "(10 * x).long()"))
    asked = counted(bench, monkeypatch)
    assert statuses(bench) == [None, None, None]
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
    bench = bench_of(SHIFTED)
    for index, part in ((2, 0), (0, 1), (1, 0)):
        bench.draw(index, "structured", part=part)
    done = answered(bench, TURNS)
    for index in range(3):
        (x,) = bench.tensors(bench.sets[index].inputs)
        bench.tensor(bench.sets[index].outputs[0]).copy_((x + 8192) - 8192)
    verifier = Verifier(bench, required=PrecisionClass.FP32, coerce=False)
    findings = verifier.check(TURNS, done, with_reference=False)
    exact = [all(own.max_error == 0 for own in finding.reference) for finding in findings]
    assert exact == [True, False, True]
    assert not any(finding.failure for finding in findings)
    assert len({finding.variant for finding in findings}) == 1


def test_how_exact_float32_is_on_the_first_inputs_convicts_nobody_on_others() -> None:
    """Answers on the other side of the truth than the reference's own, by so many times its distance."""
    bench = bench_of(SHIFTED)
    verifier = Verifier(bench, required=PrecisionClass.FP32, coerce=False)
    bench.tensor(bench.sets[0].inputs[0]).fill_(1.0)
    bench.amend(0)
    found = []
    for index, times in ((0, 0.0), (1, 2.0), (1, 9.0)):
        turn = PlannedCall(index=index, mode=CallMode.COLD)
        done = answered(bench, [turn])
        (exact,), (own,) = bench.truth(index).answer.leaves, bench.answer(index).leaves
        bench.tensor(bench.sets[index].outputs[0]).copy_(exact - times * (own - exact))
        found += verifier.check([turn], done, with_reference=False)
    assert [finding.failure is None for finding in found] == [True, True, False]


@pytest.mark.parametrize("tensor", ["(100 * x).long()", "x + y"], ids=["judged together", "by itself"])
def test_a_number_beside_the_tensors_may_be_as_inexact_as_the_references(tensor: str) -> None:
    """A sum in which all cancels: what float32 leaves of it is rounding."""
    number = "float((1e4 * x).sum() - (1e4 * x.flip(0)).cumsum(1)[:, -1].sum())"
    bench = bench_of(PROBLEM.replace("x + y", f"{tensor}, {number}"))
    turn = PlannedCall(index=0, mode=CallMode.COLD)
    done = answered(bench, [turn])
    truth, own = (held.tree.floats()[0][1] for held in (bench.truth(0).answer, bench.answer(0)))
    assert abs(own - truth) > 1e-5
    for times, right in ((0.0, True), (2.0, True), (9.0, False)):
        tree = {"format": 1, "slots": 1, "root": ["tuple", [["tensor", 0], ["float", truth - times * (own - truth)]]]}
        claims = (replace(done.claims[0], tree=tree),)
        verifier = Verifier(bench, required=PrecisionClass.FP32, coerce=False)
        (finding,) = verifier.check([turn], replace(done, claims=claims), with_reference=False)
        assert (finding.failure is None) is right, times


def test_numbers_beside_the_tensors_that_are_infinite_are_matched_by_no_other() -> None:
    bench = bench_of(PROBLEM.replace("x + y", "x + y, float('inf')"))
    turn = PlannedCall(index=0, mode=CallMode.COLD)
    done = answered(bench, [turn])
    for said, right in (("inf", True), ("-inf", False), (5.0, False), ("nan", False)):
        tree = {"format": 1, "slots": 1, "root": ["tuple", [["tensor", 0], ["float", said]]]}
        claims = (replace(done.claims[0], tree=tree),)
        verifier = Verifier(bench, required=PrecisionClass.FP32, coerce=False)
        (finding,) = verifier.check([turn], replace(done, claims=claims), with_reference=False)
        assert (finding.failure is None) is right, said

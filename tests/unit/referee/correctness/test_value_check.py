"""Judged together, calls get the findings that each gets by itself; nothing waits meanwhile, and no more memory is
needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness.core.choices import DeviceKind, PrecisionClass
from harness.protocol.messages import BurstDone
from harness.referee.correctness.compare import DeferredValues, compare, enqueue
from harness.referee.correctness.precision import LIMITS
from harness.referee.correctness.value_check import AnsweredCall, PendingCheck, ValueCheck
from harness.referee.problem.workspace import Workspace
from tests.support.answers import (
    BODIES,
    CALLS,
    PROBLEMS,
    STRESSED,
    Counted,
    answer,
    compared_alone,
    disagreements,
    found,
    workspace_of,
)
from tests.support.paths import ROOT, SUPPORT

gpu = pytest.mark.gpu

OPEN = {"rounding decides"}
"""Problems on which right answers are not settled by the truth alone."""


def test_calls_judged_together_get_the_findings_that_each_gets_by_itself(tmp_path: Path) -> None:
    """The kernels are those of a GPU, executed on the CPU."""
    command = [sys.executable, str(SUPPORT / "answers_on_cpu.py"), str(tmp_path)]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-3000:]
    judged = json.loads(done.stdout.splitlines()[-1])
    assert judged.keys() == PROBLEMS.keys()
    assert {name: wrong for name, (wrong, _, _) in judged.items() if wrong} == {}
    assert {name: wrong for name, (_, wrong, _) in judged.items() if wrong} == {}
    assert {name for name, (_, _, alone) in judged.items() if alone} == OPEN


@gpu
@pytest.mark.parametrize("name", PROBLEMS)
def test_on_a_gpu_they_do_too(name: str) -> None:
    assert disagreements(PROBLEMS[name], DeviceKind.CUDA) == []
    assert (compared_alone(PROBLEMS[name], DeviceKind.CUDA) > 0) == (name in OPEN)


@gpu
@pytest.mark.parametrize("name", ["too large", "one number", "numbers and indices", "ties", "state", "complex"])
def test_on_stressed_inputs_too(name: str) -> None:
    assert disagreements(PROBLEMS[name], DeviceKind.CUDA, STRESSED) == []


def calls_of(workspace: Workspace, done: BurstDone) -> list[AnsweredCall]:
    return [AnsweredCall(index=i, claim=claim, changed=(), wanted=True) for i, claim in enumerate(done.claims)]


@gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("name", ["sum of products", "numbers and indices", "ties", "state", "other layouts", "half"])
def test_nothing_waits_for_the_device_while_calls_are_begun(name: str) -> None:
    workspace = workspace_of(PROBLEMS[name], DeviceKind.CUDA)
    try:
        planned_calls, done = answer(workspace, ("own",) * CALLS)
        found(workspace, planned_calls, done, together=True, with_reference=True)  # the kernels are compiled
        values, readings, underway = ValueCheck(workspace, PrecisionClass.FP32), DeferredValues(), set[str]()
        torch.cuda.set_sync_debug_mode("error")
        try:
            begun = [values.begin(call, readings, underway) for call in calls_of(workspace, done)]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        readings.read()
        for call in begun:
            assert isinstance(call, PendingCheck)
            finding = values.end(call, readings)
            assert finding is not None
            assert finding.failure is None
    finally:
        workspace.close()


@gpu
def test_calls_judged_together_take_no_more_memory() -> None:
    workspace = workspace_of(PROBLEMS["sum of products"].replace("37, 53", "3000, 2000"), DeviceKind.CUDA)
    try:
        planned_calls, done = answer(workspace, ("own",) * CALLS)
        peaks = {}
        for together in (True, False, True, False):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            findings, _ = found(workspace, planned_calls, done, together=together, with_reference=True)
            assert not any(finding.failure for finding in findings)
            peaks[together] = torch.cuda.max_memory_allocated()
        assert peaks[True] <= peaks[False] + 2**20
    finally:
        workspace.close()


def truths_asked_for(body: str, spoil: Callable[[Workspace], None] = lambda workspace: None) -> list[int]:
    """How many truths two rounds over the same calls take, and whether these find the same. Of integers, which need no
    kernel, so that any device will do."""
    workspace = workspace_of(PROBLEMS["one number"].replace(BODIES["one number"], body), DeviceKind.HOST)
    _, done = answer(workspace, ("own",) * CALLS)
    spoil(workspace)
    values = ValueCheck(workspace, PrecisionClass.FP32)
    workspace.truth = counted = Counted(workspace.truth)  # type: ignore[method-assign,assignment]
    asked, failures = [], []
    for _ in range(2):
        readings, underway = DeferredValues(), set[str]()
        begun = [values.begin(call, readings, underway) for call in calls_of(workspace, done)]
        readings.read()
        for call in begun:
            finding = values.end(call, readings) if isinstance(call, PendingCheck) else call
            finding = finding or values.judge(call.call)  # type: ignore[union-attr]
            failures.append(finding.failure)
        asked.append(counted.times - sum(asked))
    assert failures[:CALLS] == failures[CALLS:]
    workspace.close()
    return asked


def test_right_answers_take_one_truth_a_call() -> None:
    assert truths_asked_for("return (100 * x).long()") == [3, 3]


def test_variants_that_need_the_longer_way_take_it_at_once_from_then_on() -> None:
    assert truths_asked_for("return (1.0 + 1e-9 * x > 1.0).long()") == [6, 3]


def test_after_a_wrong_answer_all_take_it_at_once() -> None:
    def spoil(workspace: Workspace) -> None:
        workspace.tensor(workspace.sets[1].outputs[0])[2, 3] += 1

    assert truths_asked_for("return (100 * x).long()", spoil) == [4, 3]


def test_a_comparison_under_way_says_what_one_alone_says_or_nothing() -> None:
    right, wrong = torch.arange(1000), torch.arange(1000)
    wrong[17] = 0
    readings = DeferredValues()
    pending = [enqueue(given, right.to(torch.int32), readings) for given in (right, wrong)]
    empty = enqueue(torch.zeros(0, 3), torch.zeros(0, 3).double(), readings)
    readings.read()
    limits = LIMITS[PrecisionClass.FP32]
    assert pending[0] is not None
    assert pending[0].right(readings, limits) == compare(right, right)
    assert pending[1] is not None
    assert pending[1].right(readings, limits) is None
    assert empty is not None
    assert empty.right(readings, limits) == compare(torch.zeros(0, 3), torch.zeros(0, 3).double())
    assert enqueue(torch.ones(3), torch.ones(3).double(), readings) is None, "no kernel on this device"
    with pytest.raises(ValueError, match="shape"):
        enqueue(right, right[1:], readings)
    with pytest.raises(ValueError, match="float64"):
        enqueue(right, right.double(), readings)


def test_readings_keep_their_numbers_over_several_copies() -> None:
    readings = DeferredValues()
    first, second = readings.add(torch.tensor([1.5, 2.5])), readings.add(torch.tensor(2**40))
    readings.read()
    third = readings.add(torch.tensor([[True], [False]]))
    readings.read()
    readings.read()
    assert [list(readings[number]) for number in (first, second, third)] == [[1.5, 2.5], [2.0**40], [1.0, 0.0]]

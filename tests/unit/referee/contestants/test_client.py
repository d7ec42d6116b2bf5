"""What a process that was stopped still does to its outputs: it shows by their checksums, and by how long they take."""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.problem import Problem, Workload
from harness.core.status import Status
from harness.devices.device import open_device
from harness.referee.contestants.client import ContestantClient
from harness.referee.contestants.process import MOVED, ContestantFailed, ContestantProcess
from harness.referee.problem.workspace import Workspace
from harness.sandbox import ExitReport, SandboxPolicy
from harness.sandbox.policy import Cause
from tests.unit.referee.test_referee import config

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2, x.sum(dim=0)
def get_inputs():
    return [torch.rand(8, 16)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def workspace() -> Workspace:
    problem = Problem(id="level1/1", name="twice", path=Path("1_twice.py"), source=PROBLEM, digest=PROBLEM)
    return Workspace(
        problem, Workload(name="full"), open_device(DeviceKind.HOST), sets_wanted=3, secret=random.Random(1)
    )


class Stopped:
    """A contestant that stands still, or has `moved`; nobody asks it anything."""

    moved = False

    def expect_still(self) -> None:
        if self.moved:
            raise ContestantFailed(MOVED)


def conversation(workspace: Workspace, closed: list[int], contestant: Any = None) -> ContestantClient:
    """One that has just ended a burst over these sets."""
    nobody: Any = None
    held = ContestantClient(config(DeviceKind.HOST), workspace, contestant or Stopped(), nobody, {}, 0.0)
    held._closed = closed
    held._closed_digests = workspace.output_digests(closed)
    return held


def test_an_output_that_changes_after_its_burst_is_a_late_write(workspace: Workspace) -> None:
    held = conversation(workspace, [0, 2])
    held.expect_still()
    workspace.tensor(workspace.sets[1].outputs[0]).zero_()
    held.expect_still()  # of another call
    workspace.tensor(workspace.sets[2].outputs[1])[3] = 1.0
    with pytest.raises(ContestantFailed) as refused:
        held.expect_still()
    assert refused.value.failure.status is Status.disqualified


def test_a_process_that_ran_while_it_was_stopped_wrote_nothing_that_counts(workspace: Workspace) -> None:
    contestant = Stopped()
    held = conversation(workspace, [0], contestant)
    held.expect_still()
    contestant.moved = True
    with pytest.raises(ContestantFailed) as refused:
        held.expect_still()
    assert refused.value.failure.evidence == {"rule": "stopped"}


@pytest.mark.parametrize(("cause", "status"), [("memory_limit", Status.out_of_memory), (None, Status.disqualified)])
def test_who_is_ended_while_it_is_stopped_has_not_run_on(cause: Cause | None, status: Status) -> None:
    """The watchdog may find it above its limit when it has answered: its threads run then, to end."""

    class Ended:
        channel = SimpleNamespace(close=lambda: None)

        def moved(self) -> bool:
            return True

        def is_ending(self) -> bool:
            return cause is not None

        def wait(self, _timeout_s: float) -> ExitReport | None:
            return cause and ExitReport(exit_code=None, signal=9, cause=cause, wall_s=1.0)

        def kill(self) -> ExitReport:
            return ExitReport(exit_code=None, signal=9, cause="killed", wall_s=1.0)

    zygote: Any = SimpleNamespace(spawn=lambda *_: Ended())
    with ContestantProcess(zygote, SandboxPolicy(), Path(os.devnull), memory_limit_bytes=2**30) as contestant:
        contestant._entered = True
        with pytest.raises(ContestantFailed) as refused:
            contestant.expect_still()
        assert contestant.exit_report is not None
    assert refused.value.failure.status is status


def test_reading_outputs_is_held_against_the_shortest_time_that_it_ever_took(workspace: Workspace) -> None:
    held = conversation(workspace, [0, 1])
    first = held._beyond_reading_s(5000.0)
    assert 4000.0 < first < 5000.0, "read once more, for want of anything to compare with"
    known_s = workspace.reading_s[(0, 1)]
    assert held._beyond_reading_s(5.0) == 5.0 - known_s
    assert held._beyond_reading_s(known_s / 2) < 0.0
    assert workspace.reading_s[(0, 1)] == known_s / 2


def test_the_second_reading_sees_a_late_write_too(workspace: Workspace) -> None:
    held = conversation(workspace, [0])
    workspace.tensor(workspace.sets[0].outputs[0])[0, 0] = 7.0
    with pytest.raises(ContestantFailed):
        held._beyond_reading_s(0.1)

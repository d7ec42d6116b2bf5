"""What counts as a disturbance of a measurement, what is only recorded, and how often a round is made again."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from harness.devices.interference import MAX_REPEATS, Neighbours, Reading, Repeats, disturbance, neighbours
from harness.devices.nvml import parents_of

OWN, ZYGOTE, GUEST, FOREIGN = 100, 110, 120, 900
PARENTS = {1: 0, OWN: 50, 50: 1, ZYGOTE: OWN, GUEST: ZYGOTE, FOREIGN: 1}
QUIET = Neighbours(known=True, foreign=0, busy=0)


def reading(**changes: Any) -> Reading:
    return Reading(**{"at_s": 10.0, "processes": frozenset({OWN, GUEST}), "busy": {}, "reasons": 0, **changes})


def test_a_contestant_is_no_foreign_process() -> None:
    assert neighbours(reading(), OWN, PARENTS) == QUIET


def test_a_foreign_process_counts_once_it_works() -> None:
    everyone = frozenset({OWN, GUEST, FOREIGN})
    idle = neighbours(reading(processes=everyone, busy={GUEST: 90}), OWN, PARENTS)
    assert idle == Neighbours(known=True, foreign=1, busy=0)
    assert disturbance(reading(), reading(at_s=11.0), idle) is None
    busy = neighbours(reading(processes=everyone, busy={GUEST: 90, FOREIGN: 40}), OWN, PARENTS)
    assert busy.busy == 1
    assert "1 other process" in str(disturbance(reading(), reading(at_s=11.0), busy))


def test_what_the_driver_does_not_say_disturbs_nothing() -> None:
    everyone = frozenset({OWN, FOREIGN})
    unknown_work = neighbours(reading(processes=everyone, busy=None), OWN, PARENTS)
    assert unknown_work == Neighbours(known=True, foreign=1, busy=None)
    assert disturbance(reading(), reading(at_s=11.0), unknown_work) is None
    # Numbers of another namespace: this process is not among them.
    assert neighbours(reading(processes=frozenset({GUEST, FOREIGN})), OWN, PARENTS) == Neighbours(known=False)
    assert neighbours(reading(processes=None), OWN, PARENTS) == Neighbours(known=False)
    assert disturbance(Reading(at_s=0.0), Reading(at_s=1.0), Neighbours(known=False)) is None


def test_a_process_that_has_ended_is_nobody() -> None:
    assert neighbours(reading(processes=frozenset({OWN, 4242})), OWN, PARENTS) == QUIET


def test_a_loop_among_parents_ends() -> None:
    assert neighbours(reading(processes=frozenset({OWN, 7})), OWN, {7: 8, 8: 7, OWN: 1}).foreign == 1


@pytest.mark.parametrize(
    ("reasons", "word"),
    [(0x08, "hardware slowdown"), (0x40, "temperature"), (0x80, "power brake"), (0x20, "temperature")],
)
def test_throttling_by_its_reason(reasons: int, word: str) -> None:
    assert word in str(disturbance(reading(), reading(reasons=reasons | 0x4), QUIET))


@pytest.mark.parametrize("reasons", [None, 0x0, 0x1, 0x2, 0x4, 0x100])
def test_steady_states_are_no_throttling(reasons: int | None) -> None:
    assert disturbance(reading(), reading(reasons=reasons), QUIET) is None


@pytest.mark.parametrize(("held_ms", "disturbed"), [(0, False), (5, False), (50, True)])
def test_time_spent_throttled_counts_from_a_share_of_the_round(held_ms: int, disturbed: bool) -> None:
    before = reading(throttled_ns={"hot": 10**9})
    after = reading(at_s=11.0, throttled_ns={"hot": 10**9 + held_ms * 10**6})
    assert (disturbance(before, after, QUIET) is not None) is disturbed
    # A counter that was not there before says nothing about the time between.
    assert disturbance(reading(), after, QUIET) is None


def test_rounds_are_repeated_a_bounded_number_of_times() -> None:
    repeats = Repeats()
    assert repeats.keep(None)
    assert not repeats.gave_up
    assert [repeats.keep("busy") for _ in range(MAX_REPEATS)] == [False] * MAX_REPEATS
    assert not repeats.gave_up
    assert repeats.keep("busy")
    assert repeats.gave_up
    assert repeats.to_json()["rounds_repeated"] == MAX_REPEATS


def test_the_process_tree_is_read_from_the_kernel() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        parents = parents_of([child.pid, os.getpid()])
        assert parents[child.pid] == os.getpid()
        alone = Reading(at_s=0.0, processes=frozenset({os.getpid(), child.pid, 1}), busy={})
        found = neighbours(alone, os.getpid(), parents)
        assert found == Neighbours(known=True, foreign=1, busy=0)
    finally:
        child.communicate(b"\n")

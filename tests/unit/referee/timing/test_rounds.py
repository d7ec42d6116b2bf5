"""How many calls rounds make: a plan over real inputs and a real reference, with a solution whose times are given."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from harness.core.choices import DeviceKind
from harness.core.problem import Problem, Workload, digest_text
from harness.devices.device import open_device
from harness.devices.stream_gate import Gate, OwnGate
from harness.protocol.messages import BurstDone, CallClaim, CallMode, LaunchMode
from harness.referee.problem.burst_plan import PlannedCall, in_turn, plan_calls, stressed_planned_calls
from harness.referee.problem.workspace import Workspace
from harness.referee.timing import rounds as measure
from harness.referee.timing.rounds import (
    IN_LINE_S,
    INPUTS,
    LONG_S,
    MOST_DOUBTED,
    OUTPUTS,
    REFERENCE,
    SOLUTION,
    ReferenceRunner,
    RoundRules,
    Rounds,
    RoundSettings,
    SolutionSide,
    run_rounds,
)

SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.rand(16)]
def get_init_inputs():
    return []
"""

SETS = 10


def make_workspace() -> Workspace:
    problem = Problem(id="level1/19", name="add", path=Path("19_add.py"), source=SOURCE, digest=digest_text(SOURCE))
    return Workspace(
        problem,
        Workload(name="full"),
        open_device(DeviceKind.HOST, 0),
        sets_wanted=SETS,
        secret=random.Random(1),
    )


def measured(call_s: float, long_s: float, known_s: float = 0.0, first_s: float | None = None) -> Rounds:
    """Four rounds or more of a solution whose calls take `call_s` on every clock (in the first round `first_s`), and
    took `known_s` before."""
    workspace = make_workspace()
    bursts = itertools.chain([call_s if first_s is None else first_s], itertools.repeat(call_s))

    def burst(planned_calls: Sequence[PlannedCall]) -> tuple[BurstDone, float]:
        took_s = next(bursts)
        claim = CallClaim(device_s=took_s, window_s=took_s, tree={}, leaves=(), state_missing=())
        return BurstDone(claims=(claim,) * len(planned_calls), reports=()), took_s * len(planned_calls)

    try:
        return run_rounds(
            workspace,
            ReferenceRunner(workspace),
            SolutionSide(burst=burst, verify=lambda planned_calls, done: True),
            RoundRules(settled=lambda rounds: "interval" if len(rounds.held) >= 4 else None),
            RoundSettings(sets=SETS, min_samples=30, max_rounds=40, long_s=long_s, call_s=known_s),
            random.Random(2),
        )
    finally:
        workspace.close()


@pytest.mark.parametrize(
    ("call_s", "known_s", "calls", "samples", "warm"),
    [
        (0.9 * LONG_S, 0.0, [10, 10, 10, 10], 32, 4),
        (LONG_S, 0.0, [10, 4, 4, 4], 18, 1),
        (LONG_S, LONG_S, [4, 4, 4, 4], 13, 1),
        # One that was slow while it was verified, and is not.
        (0.9 * LONG_S, LONG_S, [4, 10, 10, 10, 10, 10], 43, 6),
    ],
)
def test_long_calls_are_made_no_more_often_than_samples_need(
    call_s: float, known_s: float, calls: list[int], samples: int, warm: int
) -> None:
    rounds = measured(call_s, LONG_S, known_s)
    assert [len(held.planned_calls) for held in rounds.held] == calls
    modes = Counter(planned_call.mode for held in rounds.held for planned_call in held.planned_calls)
    assert modes[CallMode.COLD] == samples
    assert modes[CallMode.WARM] == warm
    assert modes[CallMode.LATENCY] >= 2
    assert [held.reference_first for held in rounds.held] == [True, False] * (len(calls) // 2)
    for held in rounds.held:
        assert len({planned_call.index for planned_call in held.planned_calls}) == len(held.planned_calls)
        assert len(held.reference.times) == len(held.reference_planned_calls) == SETS  # which may take much less
    reference, solution = rounds.samples(CallMode.COLD)
    assert sum(map(len, solution)) == samples
    assert [len(burst) for burst in reference] == [8] * len(calls)
    assert len(rounds.windows(CallMode.LATENCY)[0]) == len(calls)
    assert set(rounds.spent_on_s) == {INPUTS, REFERENCE, SOLUTION, OUTPUTS}
    assert sum(rounds.spent_on_s.values()) < rounds.spent_s
    assert rounds.spent_on_s[REFERENCE] >= sum(held.reference.wall_s for held in rounds.held)


def test_who_is_slow_in_one_round_makes_fewer_calls_in_the_next_alone() -> None:
    rounds = measured(0.9 * LONG_S, LONG_S, LONG_S, 2 * LONG_S)
    assert [len(held.planned_calls) for held in rounds.held] == [4, 4, 10, 10, 10, 10]


def doubting(
    doubted: Container[int], least: int, stress: Sequence[tuple[str, int]] = (), in_line_s: float = 0.0
) -> Rounds:
    """Rounds of which these are doubted, by their numbers among all that were made; `least` that count are enough. The
    solution stands in line for a processor for so long in each."""
    workspace, made = make_workspace(), itertools.count()
    claim = CallClaim(device_s=1e-3, window_s=1e-3, tree={}, leaves=(), state_missing=())
    try:
        return run_rounds(
            workspace,
            ReferenceRunner(workspace),
            SolutionSide(
                burst=lambda planned_calls: (
                    BurstDone(claims=(claim,) * len(planned_calls), reports=()),
                    1e-3 * len(planned_calls),
                ),
                verify=lambda planned_calls, done: True,
                in_line_s=lambda: in_line_s,
            ),
            RoundRules(
                settled=lambda rounds: "interval" if len(rounds.held) >= least else None,
                doubt=lambda rounds: "not explained" if next(made) in doubted else None,
            ),
            RoundSettings(sets=SETS, min_samples=8, max_rounds=40, stress=stress),
            random.Random(2),
        )
    finally:
        workspace.close()


@pytest.mark.parametrize(("doubted", "again"), [({1}, 1), ({0, 1, 2, 3, 4, 5, 6, 7}, MOST_DOUBTED)])
def test_a_round_that_is_doubted_is_made_again_some_times(doubted: set[int], again: int) -> None:
    """Who is doubted each time pays in the end."""
    rounds = doubting(doubted, 4)
    assert rounds.doubted == ["not explained"] * again
    assert len(rounds.held) == 4
    assert [held.reference_first for held in rounds.held] == [True, False, True, False]


def test_who_stood_in_line_for_a_processor_gets_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MOST_THROWN_S", 600.0)  # however busy this machine is
    rounds = doubting(range(3 * MOST_DOUBTED), 4, in_line_s=2 * IN_LINE_S)
    assert rounds.doubted == ["not explained"] * 3 * MOST_DOUBTED
    assert 0.0 < rounds.thrown_s < rounds.spent_s
    assert [held.in_line_s for held in rounds.held] == [2 * IN_LINE_S] * 4
    little = doubting(range(3 * MOST_DOUBTED), 4, in_line_s=IN_LINE_S / 2)
    assert len(little.doubted) == MOST_DOUBTED
    assert little.thrown_s == 0.0


def test_but_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads can be made to stand in each other's way. Who does that pays in the end like anybody else."""
    monkeypatch.setattr(measure, "MOST_THROWN_S", 0.0)
    assert len(doubting(range(10**9), 4, in_line_s=1.0).doubted) == MOST_DOUBTED


def test_stress_inputs_of_a_round_that_was_doubted_are_none_of_those_that_are_asked_for() -> None:
    """Who is slow in the rounds that are made again would else choose in which he is right."""
    stress = [("zero_mean", 0), ("large_values", 0), ("structured", 0)]
    for doubted in (set[int](), {0, 1}, {1}, {1, 2}):
        rounds = doubting(doubted, 2, stress)
        assert len(rounds.held) in (2, 4), "as many of either order"
        assert not rounds.lacking


def test_without_a_limit_no_call_is_long() -> None:
    rounds = measured(100 * LONG_S, float("inf"))
    assert [len(held.planned_calls) for held in rounds.held] == [10, 10, 10, 10]


def test_sparing_calls_warm_up_once() -> None:
    plans = [plan_calls(8, random.Random(number), number, sparing=True) for number in range(5)]
    assert [sum(planned_call.mode is CallMode.WARM for planned_call in plan) for plan in plans] == [1, 0, 0, 0, 0]
    assert [sum(planned_call.mode is CallMode.LATENCY for planned_call in plan) for plan in plans] == [0, 1, 1, 0, 0]
    assert all(sorted(planned_call.index for planned_call in plan) == list(range(8)) for plan in plans)


def test_nothing_of_a_burst_is_under_way_when_it_leaves_its_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of different lanes don't wait for one another: state must be put back before the next truth needs it."""
    workspace, seen = make_workspace(), list[str]()

    @contextmanager
    def lane(number: int) -> Iterator[None]:
        seen.append(f"lane {number}")
        yield
        seen.append("left")

    try:
        workspace.draw(0)
        workspace.hold_back([0])
        monkeypatch.setattr(workspace.device, "lane", lane)
        monkeypatch.setattr(workspace.device, "synchronize", lambda: seen.append("waited"))
        monkeypatch.setattr(workspace.oracle, "restore_state", lambda: seen.append("restored"))
        ReferenceRunner(workspace, lane=5).burst([PlannedCall(index=0, mode=CallMode.COLD)])
    finally:
        workspace.close()
    assert seen[0] == "lane 5"
    assert seen[-3:] == ["restored", "waited", "left"]


def test_no_burst_of_the_references_takes_the_memory_that_flushes_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host device they are what solutions' bursts are held against: the first one, dearer by that, hid lies of
    as much as three times the difference."""

    def take() -> int:
        raise AssertionError("memory for flushes was taken in a burst")

    workspace = make_workspace()
    try:
        workspace.draw(0)
        workspace.hold_back([0])
        runner = ReferenceRunner(workspace)
        monkeypatch.setattr("harness.devices.host.last_level_cache_bytes", take)
        made = runner.burst([PlannedCall(index=0, mode=CallMode.COLD)])
    finally:
        workspace.close()
    assert len(made.times) == 1


def test_words_are_held_back_by_way_of_the_references_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, seen = make_workspace(), list[object]()

    @contextmanager
    def lane(number: int) -> Iterator[None]:
        seen.append(number)
        yield
        seen.append("left")

    try:
        workspace.draw(0)
        monkeypatch.setattr(workspace.device, "lane", lane)
        monkeypatch.setattr(workspace, "hold_back", lambda indices: seen.append(list(indices)))
        ReferenceRunner(workspace, lane=5).hold_back([0])
    finally:
        workspace.close()
    assert seen == [5, [0], "left"]


class Unmoved:
    """A stream's end of a gate on a device that makes each call as it is submitted."""

    def hold(self, number: int) -> None: ...

    def tell(self, number: int) -> None: ...


def test_a_reference_that_fails_behind_a_gate_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all that comes next on this device would wait for ever, this process with it."""
    workspace, gate = make_workspace(), Gate()

    def queue(calls: Sequence[Callable[[], None]], stream: Unmoved, number: int) -> NoReturn:
        assert not gate.is_open
        for call in calls:
            call()
        raise AssertionError("none of them failed")

    def fail(arguments: Sequence[object]) -> NoReturn:
        raise RuntimeError("no second call")

    monkeypatch.setattr(workspace.device, "own_gate", lambda: OwnGate(gate, Unmoved()))
    monkeypatch.setattr(workspace.device, "queue", queue)
    try:
        with pytest.raises(RuntimeError, match="no second call"):
            ReferenceRunner(workspace, fail).back_to_back(range(2), LaunchMode.QUEUED)
        assert gate.is_open
    finally:
        gate.close()
        workspace.close()


def test_each_variant_has_its_turn_before_one_comes_again() -> None:
    """Whatever is drawn: a mistake that one of three variants finds is found in three rounds."""
    stress = [(name, part) for name in ("zero_mean", "large_values", "structured") for part in range(2)]
    orders = set()
    for seed in range(50):
        taken = list(itertools.islice(in_turn(stress, random.Random(seed)), 12))
        laps = [taken[i : i + 3] for i in range(0, 12, 3)]
        assert all(len({name for name, _ in lap}) == 3 for lap in laps)
        assert all(sorted(laps[i] + laps[i + 1]) == sorted(stress) for i in (0, 2))
        orders.add(tuple(taken))
    assert len(orders) > 40


def test_without_variants_all_calls_are_over_the_problems_own_inputs() -> None:
    assert list(itertools.islice(in_turn([], random.Random(0)), 3)) == [("own", 0)] * 3


@pytest.mark.parametrize(("sets", "calls", "least"), [(SETS, 2, 2), (SETS - 3, 1, 3)])
def test_no_rule_ends_the_timing_before_each_variant_had_its_turn(sets: int, calls: int, least: int) -> None:
    """Two of eight timed calls are over stress variants, one of five: so all were there in two or three rounds."""
    stress = [("zero_mean", 0), ("large_values", 0), ("structured", 0)]
    workspace = make_workspace()
    drawn: list[str] = []

    def burst(planned_calls: Sequence[PlannedCall]) -> tuple[BurstDone, float]:
        drawn.extend(
            workspace.variant(planned_call.index)
            for planned_call in planned_calls
            if planned_call.mode is CallMode.COLD
        )
        claim = CallClaim(device_s=1.0, window_s=1.0, tree={}, leaves=(), state_missing=())
        return BurstDone(claims=(claim,) * len(planned_calls), reports=()), float(len(planned_calls))

    try:
        rounds = run_rounds(
            workspace,
            ReferenceRunner(workspace),
            SolutionSide(burst=burst, verify=lambda planned_calls, done: True),
            RoundRules(settled=lambda rounds: "budget"),
            RoundSettings(sets=sets, min_samples=1, max_rounds=40, stress=stress),
            random.Random(2),
        )
    finally:
        workspace.close()
    assert rounds.stopped_by == "budget"
    stressed = [name for name in drawn if name != "own"]
    assert len(stressed) == calls * least
    assert set(stressed) == {"large_values", "structured", "zero_mean"}
    assert len(rounds.held) == least


@pytest.mark.parametrize(("in_time", "lacking"), [(0, 1), (1, 0), (5, 0)])
def test_rounds_that_time_cuts_short_say_how_many_more_calls_there_should_be(in_time: int, lacking: int) -> None:
    workspace = make_workspace()
    made = 0

    def burst(planned_calls: Sequence[PlannedCall]) -> tuple[BurstDone, float]:
        nonlocal made
        made += 1
        claim = CallClaim(device_s=1.0, window_s=1.0, tree={}, leaves=(), state_missing=())
        return BurstDone(claims=(claim,) * len(planned_calls), reports=()), float(len(planned_calls))

    try:
        rounds = run_rounds(
            workspace,
            ReferenceRunner(workspace),
            SolutionSide(burst=burst, verify=lambda planned_calls, done: True),
            RoundRules(
                settled=lambda rounds: None, deadline_s=lambda: float("inf") if made <= in_time else float("-inf")
            ),
            RoundSettings(
                sets=SETS,
                min_samples=1,
                max_rounds=40,
                stress=[("zero_mean", 0), ("large_values", 0), ("structured", 0)],
            ),
            random.Random(2),
        )
    finally:
        workspace.close()
    assert (rounds.stopped_by, len(rounds.held), len(rounds.lacking)) == ("deadline", in_time + 1, lacking)


def test_a_round_that_times_nothing_spends_no_variant() -> None:
    following = {CallMode.COLD: in_turn([("zero_mean", 0), ("large_values", 0)], random.Random(1))}
    warm = (PlannedCall(index=0, mode=CallMode.WARM),)
    assert stressed_planned_calls(warm, following, random.Random(3)) == {}
    shown = [stressed_planned_calls(plan_calls(1, random.Random(2), n), following, random.Random(3)) for n in (1, 2)]
    assert sorted(name for held in shown for name, _ in held.values()) == ["large_values", "zero_mean"]


def test_every_call_over_a_single_set_is_timed() -> None:
    for number in range(3):
        (call,) = plan_calls(1, random.Random(2), number)
        assert call.mode is CallMode.COLD


def test_a_quarter_of_the_calls_that_are_timed_cold_is_stressed() -> None:
    """As many as a burst's time is deaf to: the mean of its middle half leaves out two of eight on either side."""
    stress = [("zero_mean", 0), ("large_values", 0), ("structured", 0)]
    following = {CallMode.COLD: in_turn(stress, random.Random(1))}
    for sets, cold, stressed in ((3, 3, 1), (9, 7, 1), (10, 8, 2), (13, 11, 2), (14, 12, 3)):
        planned_calls = plan_calls(sets, random.Random(sets), 9)
        assert sum(planned_call.mode is CallMode.COLD for planned_call in planned_calls) == cold
        assert len(stressed_planned_calls(planned_calls, following, random.Random(3))) == stressed


def test_calls_of_each_timed_mode_are_over_inputs_that_are_not_the_problems_own() -> None:
    """Every variant in turn, at a place of the burst that can't be told beforehand. None is spent on a call to warm up:
    who is wrong only where the time counts would get by."""
    stress = [("zero_mean", 0), ("zero_mean", 1), ("large_values", 0)]
    workspace = make_workspace()
    drawn: list[list[tuple[CallMode, str]]] = []

    def burst(planned_calls: Sequence[PlannedCall]) -> tuple[BurstDone, float]:
        drawn.append([(planned_call.mode, workspace.variant(planned_call.index)) for planned_call in planned_calls])
        claim = CallClaim(device_s=1.0, window_s=1.0, tree={}, leaves=(), state_missing=())
        return BurstDone(claims=(claim,) * len(planned_calls), reports=()), float(len(planned_calls))

    try:
        run_rounds(
            workspace,
            ReferenceRunner(workspace),
            SolutionSide(burst=burst, verify=lambda planned_calls, done: True),
            RoundRules(settled=lambda rounds: "interval" if len(rounds.held) >= 30 else None),
            RoundSettings(sets=SETS, min_samples=30, max_rounds=40, stress=stress),
            random.Random(2),
        )
    finally:
        workspace.close()
    seen = {
        mode: [[name for held, name in calls if held is mode and name != "own"] for calls in drawn]
        for mode in (CallMode.COLD, CallMode.LATENCY)
    }
    # Two of the eight calls of a round, and its one for latency.
    assert all(sorted(names) == ["large_values", "zero_mean"] for names in seen[CallMode.COLD])
    latency = seen[CallMode.LATENCY]
    assert all(len(names) == 1 for names in latency)
    laps = [sorted(latency[i] + latency[i + 1]) for i in range(0, len(latency), 2)]
    assert laps == [["large_values", "zero_mean"]] * 15
    assert not any(held is CallMode.WARM and name != "own" for calls in drawn for held, name in calls)
    places = {i for calls in drawn for i, (_, name) in enumerate(calls) if name != "own"}
    assert len(places) > SETS / 2


def test_a_disturbed_round_is_made_again_without_end() -> None:
    workspace, looks = make_workspace(), itertools.count()

    def look() -> Callable[[], bool]:
        quiet = next(looks) % 2 == 1
        return lambda: quiet

    claim = CallClaim(device_s=1e-3, window_s=1e-3, tree={}, leaves=(), state_missing=())
    try:
        rounds = run_rounds(
            workspace,
            ReferenceRunner(workspace),
            SolutionSide(
                burst=lambda planned_calls: (
                    BurstDone(claims=(claim,) * len(planned_calls), reports=()),
                    1e-3 * len(planned_calls),
                ),
                verify=lambda planned_calls, done: True,
            ),
            RoundRules(
                settled=lambda rounds: "interval" if len(rounds.held) >= 4 else None,
                look=look,
            ),
            RoundSettings(sets=SETS, min_samples=8, max_rounds=40),
            random.Random(2),
        )
    finally:
        workspace.close()
    assert (len(rounds.held), rounds.stopped_by, next(looks)) == (4, "interval", 8)

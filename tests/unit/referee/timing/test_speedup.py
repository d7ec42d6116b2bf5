"""From rounds to a speedup and its record: baselines that were disturbed, noise, what calls without a pause add."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.stats import NoiseFloor
from harness.core.status import Status
from harness.devices.device import CallTime
from harness.devices.empty_kernel import Compared
from harness.protocol.messages import BurstDone, CallClaim, CallMode, LaunchMode
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.timing.back_to_back import BackToBackTimes
from harness.referee.timing.back_to_back_burst import NO_MEMORY, WAITS, BurstRefusal, RefusalCause
from harness.referee.timing.calibration import Calibration
from harness.referee.timing.claims import LAUNCHED, QUEUED, judge_back_to_back
from harness.referee.timing.reference_timing import ProblemCalibration, ReferenceTiming, halves
from harness.referee.timing.rounds import ReferenceBurst, Round, Rounds
from harness.referee.timing.speedup import (
    BUSY_HOST,
    DISTURBED_BASELINE,
    HOST_BIAS_S,
    LEAST_ROUNDS,
    NOT_QUEUED,
    UNEXPLAINED,
    WAITS_FOR_DEVICE,
    JudgedTimes,
    SettledTimes,
    _undisturbed,
    doubt,
    judge_times,
    peak_memory,
    with_graph,
)

BURSTS = [[1.0, 1.02, 0.98], [1.01, 0.99, 1.0]]
SOLUTION = [[0.5], [0.5]]


def quiet_of(reference_s: float, log_width: float = 0.005) -> ReferenceTiming:
    return ReferenceTiming(
        reference_s=reference_s,
        floor=NoiseFloor(log_width=log_width, pairs=4),
        measured_log_width=log_width,
        least_log_width=0.005,
        peak_bytes=None,
    )


def test_a_baseline_that_a_solution_slowed_counts_as_it_was_before() -> None:
    slowed = [[2.0 * time_s for time_s in burst] for burst in BURSTS]
    bursts, slower = _undisturbed(slowed, SOLUTION, quiet_of(1.0))
    assert slower == pytest.approx(2.0)
    assert [time_s for burst in bursts for time_s in burst] == pytest.approx([t for burst in BURSTS for t in burst])


@pytest.mark.parametrize("quiet_s", [1.0, 2.0, 1.0 / 1.0049])
def test_differences_within_the_noise_and_slower_beginnings_change_nothing(quiet_s: float) -> None:
    assert _undisturbed(BURSTS, SOLUTION, quiet_of(quiet_s)) == (BURSTS, 1.0)


@pytest.mark.parametrize(("slower", "counts"), [(1.05, False), (1.11, True)])
def test_the_noise_floor_of_the_reference_alone_is_the_limit(slower: float, counts: bool) -> None:
    slowed = [[slower * time_s for time_s in burst] for burst in BURSTS]
    assert (_undisturbed(slowed, SOLUTION, quiet_of(1.0, math.log(1.1)))[1] > 1.0) is counts
    assert _undisturbed(slowed, SOLUTION, quiet_of(1.0))[1] == pytest.approx(slower)


OVERHEAD_S = 200e-6
CALLS = 8
NONSTOP_CALLS = 32


def rounds(reference_s: float, solution_s: float, number: int = 4) -> Rounds:
    """Rounds of calls that take as long as they say, with a little scatter."""
    planned_calls = tuple(
        PlannedCall(index=i, mode=CallMode.LATENCY if i == CALLS - 1 else CallMode.COLD) for i in range(CALLS)
    )
    held = []
    for n in range(number):
        scatter = [1 + 0.001 * ((i + n) % 3 - 1) for i in range(CALLS)]
        mine = [solution_s * s for s in scatter]
        claims = tuple(CallClaim(device_s=t, window_s=t + 30e-6, tree={}, leaves=(), state_missing=()) for t in mine)
        times = tuple(CallTime(device_s=reference_s * s, window_s=reference_s * s + 30e-6) for s in scatter)
        wall_s = sum(mine) + CALLS * OVERHEAD_S
        held.append(
            Round(
                planned_calls=planned_calls,
                reference_planned_calls=planned_calls,
                reference=ReferenceBurst(times=times, wall_s=reference_s * CALLS + CALLS * OVERHEAD_S),
                solution=BurstDone(claims=claims, reports=()),
                solution_wall_s=wall_s,
                reference_first=n % 2 == 0,
            )
        )
    return Rounds(held=held, stopped_by="interval", spent_s=0.2)


@pytest.mark.parametrize(
    ("extra_s", "calibrated", "number", "ends"),
    [
        (0.0, False, 2, True),  # they agree
        (1e-3, False, 2, True),  # they differ by a hundredth of a call
        (60e-3, False, 2, False),  # what they differ by would hide a whole call
        (60e-3, True, 2, True),  # claims are held against others
        (60e-3, False, 4, True),  # one in four is outvoted; and so many have to do
    ],
)
def test_two_bursts_that_differ_are_no_calibration(extra_s: float, calibrated: bool, number: int, ends: bool) -> None:
    """On the host device, where they are all there is."""
    made = rounds(10e-3, 10e-3, number)
    first = made.held[0].reference
    made.held[0] = replace(made.held[0], reference=replace(first, wall_s=first.wall_s + extra_s))
    made.spent_s = 9.0
    rule = SettledTimes(target=1e-6, budget_s=1.0, calibrated=calibrated)(made)
    assert (rule is not None) is ends


def test_a_lie_of_the_whole_call_is_no_better_hidden_by_one_odd_burst() -> None:
    """An answer that is computed while it is copied: its claims are next to nothing, its bursts take what they take."""
    made = rounds(40e-3, 1e-3, LEAST_ROUNDS)
    made.held = [replace(held, solution_wall_s=held.solution_wall_s + CALLS * 40e-3) for held in made.held]
    first = made.held[0].reference
    made.held[0] = replace(made.held[0], reference=replace(first, wall_s=first.wall_s + CALLS * 20e-3))
    judged = judge_times(made, device=DeviceKind.HOST)
    assert UNEXPLAINED in judged.labels
    assert judged.speedup == pytest.approx(1.0, rel=0.1)


def test_a_lie_of_the_whole_call_is_not_hidden_by_a_round_that_others_disturb() -> None:
    """As seen beside heavy load: five calls of a replaced clock, of which three times what the reference's bursts
    differed by let everything pass."""
    made = rounds(60e-3, 1e-3, 2)
    walls_s, waits_s = ((1.16, 0.937), (0.412, 0.338)), (0.17, 0.06)
    for n, ((reference_s, solution_s), call_s) in enumerate(zip(walls_s, waits_s, strict=True)):
        held = made.held[n]
        times = tuple(CallTime(device_s=call_s, window_s=call_s) for _ in range(5))
        made.held[n] = replace(
            held,
            planned_calls=held.planned_calls[-5:],
            reference_planned_calls=held.reference_planned_calls[-5:],
            reference=ReferenceBurst(times=times, wall_s=reference_s),
            solution=BurstDone(claims=held.solution.claims[-5:], reports=()),
            solution_wall_s=solution_s,
        )
    judged = judge_times(made, device=DeviceKind.HOST)
    assert UNEXPLAINED in judged.labels
    assert judged.speedup is not None
    assert judged.speedup < 2.0


KNOWN = ProblemCalibration(
    quiet=ReferenceTiming(
        reference_s=10e-6,
        floor=NoiseFloor(log_width=0.006, pairs=6),
        measured_log_width=0.002,
        least_log_width=0.006,
        peak_bytes=4096,
        back_to_back_sets=NONSTOP_CALLS,
        back_to_back_s=30e-6,
        queued_s=9e-6,
        graph_s=8e-6,
    ),
    pauses=Calibration(per_call_s=OVERHEAD_S, spread_s=5e-6, bursts=6, least_s=0.95 * OVERHEAD_S),
    back_to_back={LaunchMode.QUEUED: Calibration(per_call_s=2e-6, spread_s=0.1e-6, bursts=4)},
    process_bytes=700 * 2**20,
)


def figures(claimed_s: float, true_s: float) -> BackToBackTimes:
    verdict = judge_back_to_back(
        [NONSTOP_CALLS * (2e-6 + true_s)],
        calls=NONSTOP_CALLS,
        claimed_s=claimed_s,
        latency_s=None,
        calibration=KNOWN.back_to_back[LaunchMode.QUEUED],
        tolerance=QUEUED,
    )
    return BackToBackTimes(
        launch_mode=LaunchMode.QUEUED, data="cached", verdict=verdict, seconds={LaunchMode.QUEUED: true_s}, refused={}
    )


def judged(reference_s: float, solution_s: float, **more: Any) -> JudgedTimes:
    found = judge_times(rounds(reference_s, solution_s), device=DeviceKind.CUDA, known=KNOWN, **more)
    json.dumps(found.timing, allow_nan=False)
    return found


def test_honest_short_calls_keep_their_speedup_and_get_a_tight_bound() -> None:
    found = judged(10e-6, 5e-6, back_to_back=figures(5e-6, 4.8e-6))
    assert found.labels == ()
    assert found.speedup == pytest.approx(2.0, rel=1e-3)
    assert found.timing["hidden_per_call_s"] == pytest.approx(6.8e-6 - 5e-6, rel=0.01)
    assert found.timing["hidden_per_call_s"] < 0.05 * found.timing["claims"]["worst"]["hidden_per_call_s"]
    assert found.timing["solution"]["queued_s"] == 4.8e-6
    assert found.timing["reference"]["queued_s"] == 9e-6
    assert found.timing["back_to_back"]["manner"] == "queued"
    assert found.timing["noise_floor"]["log_width"] == 0.006


def test_a_lie_that_the_bursts_would_let_pass_is_charged() -> None:
    """Claimed 5 us, truly 40 us: far below what the flushes hide, far above what queued calls do."""
    assert judged(10e-6, 5e-6).labels == ()
    found = judged(10e-6, 5e-6, back_to_back=figures(5e-6, 40e-6))
    assert found.labels == (UNEXPLAINED,)
    assert found.speedup == pytest.approx(0.25, rel=0.01)
    assert found.timing["solution"]["claimed_samples_s"][0][0] == pytest.approx(5e-6, rel=0.01)
    assert found.timing["solution"]["device"]["median_s"] == pytest.approx(40e-6, rel=0.01)


@pytest.mark.parametrize(
    ("solution_s", "words"),
    [(10.03e-6, "the same as eager (within 0."), (9e-6, "1.11x eager"), (11e-6, "0.909x eager")],
)
def test_inside_the_noise_floor_it_is_the_same(solution_s: float, words: str) -> None:
    found = judged(10e-6, solution_s)
    assert words in found.reason
    assert found.speedup == pytest.approx(10e-6 / solution_s, rel=1e-3)


@pytest.mark.parametrize(
    ("slower", "rounds_slowed"),
    [(1.03, 4), (1.09, 4), (2.0, 4), (1.03, 3), (1.09, 3), (2.0, 3), (1.09, 2), (2.0, 2)],
)
def test_a_reference_that_a_solution_slows_gains_nothing_for_it(slower: float, rounds_slowed: int) -> None:
    """Its twin, which leaves the reference alone, is 1.25 times as fast as eager, too."""
    honest, cheat = rounds(10e-6, 8e-6), rounds(10e-6, 8e-6)
    for number, made in enumerate(cheat.held[:rounds_slowed]):
        times = tuple(replace(time, device_s=time.device_s * slower) for time in made.reference.times)
        cheat.held[number] = replace(made, reference=replace(made.reference, times=times))
    twin, found = (judge_times(held, device=DeviceKind.CUDA, known=KNOWN) for held in (honest, cheat))
    assert twin.labels == ()
    assert twin.speedup == pytest.approx(1.25, rel=1e-3)
    assert twin.timing["beside_reference_s"] == pytest.approx(10e-6, rel=1e-3)
    assert found.labels == (DISTURBED_BASELINE,)
    assert found.speedup is not None
    assert found.speedup <= twin.speedup * 1.002
    if rounds_slowed > 2:
        assert found.timing["beside_reference_s"] == pytest.approx(slower * 10e-6, rel=2e-3)
    assert found.timing["quiet_reference_s"] == 10e-6
    assert "slower beside it, so its earlier time counts" in found.reason


def test_a_reference_slower_within_its_noise_counts_as_it_is() -> None:
    found = judged(10.05e-6, 8e-6)
    assert found.labels == ()
    assert found.speedup == pytest.approx(10.05 / 8, rel=1e-3)


def test_a_drift_of_the_reference_widens_the_floor() -> None:
    """The reference is 4 % slower in the second half of the rounds, as in another state of the GPU."""
    steady, drifting = rounds(10e-6, 9.8e-6), rounds(10e-6, 9.8e-6)
    for number, made in enumerate(drifting.held):
        factor = 1.04 if number >= len(drifting.held) / 2 else 1.0
        times = tuple(replace(time, device_s=time.device_s * factor) for time in made.reference.times)
        drifting.held[number] = replace(made, reference=replace(made.reference, times=times))
    floors = [
        judge_times(held, device=DeviceKind.CUDA, known=KNOWN).timing["noise_floor"] for held in (steady, drifting)
    ]
    assert floors[0]["log_width"] == 0.006 > floors[0]["drift_log_width"]
    assert floors[1]["log_width"] == floors[1]["drift_log_width"] == pytest.approx(0.0226, abs=0.002)


@pytest.mark.parametrize(
    ("reference_s", "solution_s", "words"),
    [
        (1e-3, 1.012e-3, "the same as eager (within 1."),
        (1e-3, 0.9e-3, "1.11x eager"),
        (100e-6, 105e-6, "0.952x eager (0.9"),
        (100e-6, 105e-6, "within the noise floor of 16%"),
    ],
)
def test_on_the_host_the_floor_is_of_the_rounds_themselves(reference_s: float, solution_s: float, words: str) -> None:
    found = judge_times(rounds(reference_s, solution_s), device=DeviceKind.HOST)
    assert found.failure is None
    assert words in found.reason  # too little is known of calls so short to call any two of them the same
    floor = found.timing["noise_floor"]
    assert floor["log_width"] == pytest.approx(HOST_BIAS_S / reference_s, rel=0.01)
    assert floor["measured_log_width"] < 0.005
    assert "back_to_back" not in found.timing


def test_a_host_s_floor_is_at_least_as_wide_as_its_reference_scatters() -> None:
    held = rounds(20e-3, 20e-3)
    for number, factor in enumerate((1.0, 1.3, 0.8, 1.2)):
        made = held.held[number]
        times = tuple(
            CallTime(device_s=time.device_s * (factor if place % 2 else 1.0), window_s=time.window_s)
            for place, time in enumerate(made.reference.times)
        )
        held.held[number] = replace(made, reference=replace(made.reference, times=times))
    floor = judge_times(held, device=DeviceKind.HOST).timing["noise_floor"]
    assert floor["log_width"] == floor["measured_log_width"] > 0.1


def test_a_graph_s_time_is_added_or_why_there_is_none() -> None:
    timing = judged(10e-6, 5e-6, back_to_back=figures(5e-6, 4.8e-6)).timing
    asked: list[float] = []

    def graph(claimed_s: float) -> tuple[float | None, str | None]:
        asked.append(claimed_s)
        return (3e-6, None) if len(asked) == 1 else (None, "it waits")

    assert with_graph(timing, graph)["solution"]["graph_s"] == 3e-6
    refused = with_graph(timing, graph)
    assert refused["solution"]["graph_s"] is None
    assert refused["back_to_back"]["refused"] == {"graph": "it waits"}
    assert timing["back_to_back"]["refused"] == {}
    assert asked == [pytest.approx(5e-6, rel=0.01)] * 2
    without = judged(10e-6, 5e-6).timing
    assert with_graph(without, graph) == without


def test_peak_memory_says_whose_word_it_is() -> None:
    found = peak_memory(KNOWN, 8192, 900 * 2**20)
    assert found == {
        "reference": 4096,
        "solution": 8192,
        "solution_process": 900 * 2**20,
        "trusted_process": 700 * 2**20,
    }


def test_a_burst_against_itself_takes_its_calls_by_turns() -> None:
    a, b = halves([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0]])
    assert a == [[1.0, 3.0], [6.0]]
    assert b == [[2.0, 4.0], [5.0, 7.0]]


def test_what_queued_calls_prove_is_not_charged_for_a_busy_machine() -> None:
    held = rounds(10e-6, 5e-6)
    busy = [replace(r, solution_wall_s=r.solution_wall_s + 20e-3) for r in held.held[:3]]
    held.held[:3] = busy
    charged = judge_times(held, device=DeviceKind.CUDA, known=KNOWN)
    assert charged.labels == (UNEXPLAINED,)
    proven = judge_times(held, device=DeviceKind.CUDA, known=KNOWN, back_to_back=figures(5e-6, 4.8e-6))
    assert proven.labels == ()
    assert proven.speedup == pytest.approx(2.0, rel=1e-3)
    assert proven.timing["claims"]["accepted"] == 1


def test_low_claims_in_some_rounds_beside_a_true_median_buy_nothing() -> None:
    """Rule 6 holds the median of the claims against the clock: what lies far below it is not explained by it."""
    true_s = 1e-3
    known = replace(KNOWN, quiet=replace(KNOWN.quiet, reference_s=true_s))
    held = rounds(true_s, true_s)
    for number in range(len(held.held) // 2):
        one = held.held[number]
        claims = tuple(replace(claim, device_s=1e-5) for claim in one.solution.claims)
        held.held[number] = replace(one, solution=replace(one.solution, claims=claims))
    honest = figures(true_s, true_s)
    assert honest.proven
    lied = judge_times(held, device=DeviceKind.CUDA, known=known, back_to_back=honest)
    assert lied.speedup == pytest.approx(1.0, rel=0.05)
    unheld = replace(honest, verdict=replace(honest.verdict, at_least_s=0.0))
    paid = judge_times(held, device=DeviceKind.CUDA, known=known, back_to_back=unheld).speedup
    assert paid is not None
    assert paid > 2.0


def launched(
    wall_s: float, claimed_s: float, latency_s: float, why: BurstRefusal = WAITS, **more: Any
) -> BackToBackTimes:
    """Calls that were not queued, beside trusted ones that take 42 us at the least; `wall_s` is per call."""
    verdict = judge_back_to_back(
        [NONSTOP_CALLS * wall_s],
        calls=NONSTOP_CALLS,
        claimed_s=claimed_s,
        latency_s=latency_s,
        calibration=Calibration(per_call_s=44.4e-6, spread_s=3.7e-6, bursts=2, least_s=41.9e-6),
        tolerance=LAUNCHED,
        **more,
    )
    return BackToBackTimes(
        launch_mode=LaunchMode.LAUNCHED,
        data="cached",
        verdict=verdict,
        seconds={LaunchMode.LAUNCHED: claimed_s},
        refused={LaunchMode.QUEUED: why},
        waited=3,
    )


@pytest.mark.parametrize(
    ("why", "label", "words"),
    [
        (WAITS, WAITS_FOR_DEVICE, "its forward waits for the device, so the wait counts as its time"),
        (
            BurstRefusal(RefusalCause.FAILS, "RuntimeError: no queues here"),
            NOT_QUEUED,
            "so launch overhead counts as its time",
        ),
    ],
)
def test_what_is_not_queued_counts_by_the_clock_and_is_not_accused(why: BurstRefusal, label: str, words: str) -> None:
    """Claimed 7 us, and 117.5 us of latency, which explains it; the clock says 168.4 us a call."""
    lied = judged(10e-6, 7e-6, back_to_back=launched(168.4e-6, 7e-6, 117.5e-6, why, by_clock=True))
    assert lied.labels == (label,)
    assert lied.speedup == pytest.approx(10.0 / 126.5, rel=1e-3)
    assert words in lied.reason
    assert lied.timing["solution"]["claimed_samples_s"][0][0] == pytest.approx(7e-6, rel=0.01)
    assert lied.timing["hidden_per_call_s"] == pytest.approx(41.9e-6, rel=1e-3)
    assert lied.timing["back_to_back"]["by_clock"] is True
    assert lied.timing["back_to_back"]["waited"] == 3
    assert lied.timing["back_to_back"]["refused"] == {"queued": why.text}


def test_what_takes_longer_alone_than_by_the_clock_counts_as_claimed() -> None:
    slow = judged(10e-6, 150e-6, back_to_back=launched(168.4e-6, 150e-6, 170e-6, by_clock=True))
    assert slow.speedup == pytest.approx(10.0 / 150.0, rel=1e-3)
    assert "the wait counts" not in slow.reason
    assert "claimed_samples_s" not in slow.timing["solution"]


def test_what_the_latency_does_not_explain_is_accused_all_the_same() -> None:
    found = judged(10e-6, 7e-6, back_to_back=launched(300e-6, 7e-6, 117.5e-6, by_clock=True))
    assert found.labels == (WAITS_FOR_DEVICE, UNEXPLAINED)
    assert found.speedup == pytest.approx(10.0 / (300.0 - 41.9), rel=1e-3)


def test_where_the_reference_waits_too_claims_are_granted() -> None:
    found = judged(10e-6, 7e-6, back_to_back=launched(168.4e-6, 7e-6, 117.5e-6))
    assert found.labels == (WAITS_FOR_DEVICE,)
    assert found.speedup == pytest.approx(10.0 / 7.0, rel=1e-3)
    assert "the wait counts" not in found.reason
    assert found.timing["hidden_per_call_s"] == pytest.approx(168.4e-6 - 7e-6, rel=1e-3)


@pytest.mark.parametrize("why", [NO_MEMORY, None])
def test_what_the_referee_could_not_queue_is_not_labelled(why: BurstRefusal | None) -> None:
    refused = {} if why is None else {LaunchMode.QUEUED: why}
    assert judged(10e-6, 5e-6, back_to_back=replace(figures(5e-6, 4.8e-6), refused=refused)).labels == ()


def test_impossible_claims_still_disqualify() -> None:
    held = rounds(10e-6, 5e-6)
    first = held.held[0]
    claims = tuple(replace(claim, device_s=-1.0) for claim in first.solution.claims)
    held.held[0] = replace(first, solution=BurstDone(claims=claims, reports=()))
    found = judge_times(held, device=DeviceKind.CUDA, known=KNOWN)
    assert found.failure is not None
    assert found.failure.status is Status.disqualified


def off(taken_off_s: float) -> Compared:
    return Compared(lane=5, taken_off_s=taken_off_s, evidence={"lane": 5, "taken_off": taken_off_s})


@pytest.mark.parametrize("own_s", [0.25e-6, -0.25e-6])
def test_what_a_process_takes_longer_for_any_call_is_taken_off(own_s: float) -> None:
    """A twin in a process that is 0.25 us slower for everything, and in one that is as much faster."""
    found = judge_times(
        rounds(10e-6, 10e-6 + own_s),
        device=DeviceKind.CUDA,
        known=KNOWN,
        back_to_back=figures(10e-6, 9e-6),
        compared=off(own_s),
    )
    assert found.speedup == pytest.approx(1.0, rel=2e-3)
    assert found.timing["empty_call_s"] == {"lane": 5, "taken_off": own_s}
    assert found.timing["solution"]["device"]["median_s"] == pytest.approx(10e-6, rel=2e-3)


def test_a_claim_that_counts_by_the_referees_clock_is_not_undercut_by_its_process() -> None:
    """Claimed 5 us, truly 40 us: what is charged for that stays."""
    held = rounds(10e-6, 5e-6)
    lied = judge_times(
        held, device=DeviceKind.CUDA, known=KNOWN, back_to_back=figures(5e-6, 40e-6), compared=off(0.2e-6)
    ).speedup
    assert lied == pytest.approx(0.25, rel=0.02)


LONG_S = 12e-3
LONG_KNOWN = replace(
    KNOWN,
    quiet=replace(KNOWN.quiet, reference_s=2.7e-3),
    pauses=Calibration(per_call_s=0.57e-3, spread_s=10e-6, bursts=5, least_s=0.55e-3),
    sparing=Calibration(per_call_s=1.25e-3, spread_s=20e-6, bursts=3, least_s=1.2e-3),
    back_to_back={},
)
"""As on an H200: ten calls cost 5.7 ms beside their own times, four 5.0."""


def few(made: Rounds, once_s: float) -> Rounds:
    """These rounds with four calls of the solution each, and bursts that cost so much beside them."""
    for number, held in enumerate(made.held):
        claims = held.solution.claims[:4]
        made.held[number] = replace(
            held,
            planned_calls=held.planned_calls[:4],
            solution=BurstDone(claims=claims, reports=()),
            solution_wall_s=sum(claim.device_s for claim in claims) + once_s,
        )
    return made


@pytest.mark.parametrize(("once_s", "explained"), [(5.0e-3, True), (5.7e-3, True), (10e-3, False)])
def test_few_calls_are_held_against_bursts_of_few_calls(once_s: float, explained: bool) -> None:
    """What a burst costs once would else be doubted: 5.7 ms are 3.4 more than four tenths of what ten calls cost."""
    made = few(rounds(2.7e-3, LONG_S), once_s)
    assert (doubt(made, DeviceKind.CUDA, LONG_KNOWN) is None) is explained
    found = judge_times(made, device=DeviceKind.CUDA, known=LONG_KNOWN)
    assert (UNEXPLAINED in found.labels) is not explained
    assert found.timing["claims"]["charged_rounds"] == ([] if explained else [0, 1, 2, 3])
    if explained:
        assert found.speedup == pytest.approx(2.7e-3 / LONG_S, rel=1e-3)
        more = few(rounds(2.7e-3, LONG_S), 5.7e-3)
        assert doubt(more, DeviceKind.CUDA, replace(LONG_KNOWN, sparing=None)) is not None


def test_calls_that_are_made_back_to_back_too_are_not_doubted_before() -> None:
    made = few(rounds(2.7e-3, 4e-3), 20e-3)
    assert doubt(made, DeviceKind.CUDA, LONG_KNOWN) is not None
    queued = replace(LONG_KNOWN, back_to_back=KNOWN.back_to_back, quiet=replace(LONG_KNOWN.quiet, back_to_back_sets=3))
    assert doubt(made, DeviceKind.CUDA, queued) is None
    many = replace(queued, quiet=replace(queued.quiet, back_to_back_sets=30))
    assert doubt(made, DeviceKind.CUDA, many) is not None, "so many calls of 4 ms are not made without a pause"


def test_where_nothing_is_known_nothing_is_doubted() -> None:
    made = few(rounds(2.7e-3, LONG_S), 1.0)
    assert doubt(made, DeviceKind.CUDA, None) is None
    assert doubt(made, DeviceKind.CUDA, replace(LONG_KNOWN, pauses=None)) is None


@pytest.mark.parametrize("in_line_s", [0.0, 3e-3])
def test_who_is_charged_where_it_stood_in_line_for_a_processor_is_told(in_line_s: float) -> None:
    made = few(rounds(2.7e-3, LONG_S), 10e-3)
    made.held = [replace(held, in_line_s=in_line_s) for held in made.held]
    found = judge_times(made, device=DeviceKind.CUDA, known=LONG_KNOWN)
    assert found.labels == ((UNEXPLAINED, BUSY_HOST) if in_line_s else (UNEXPLAINED,))
    assert found.timing["in_line_s"] == [in_line_s] * 4
    right = few(rounds(2.7e-3, LONG_S), 5e-3)
    right.held = [replace(held, in_line_s=in_line_s) for held in right.held]
    assert judge_times(right, device=DeviceKind.CUDA, known=LONG_KNOWN).labels == ()


def test_rounds_that_were_thrown_away_for_standing_in_line_take_no_time_from_the_rest() -> None:
    made = rounds(10e-6, 5e-6, 2)
    assert SettledTimes(target=1e-9, budget_s=1.0)(replace(made, spent_s=1.5)) == "budget"
    assert SettledTimes(target=1e-9, budget_s=1.0)(replace(made, spent_s=1.5, thrown_s=1.0)) is None


def test_who_was_charged_while_the_referee_was_kept_from_its_clock_is_told() -> None:
    held = rounds(10e-6, 5e-6)
    late = replace(figures(5e-6, 4.8e-6), kept_from_clock=True, late_s=[3e-3] * 15)
    found = judge_times(held, device=DeviceKind.CUDA, known=KNOWN, back_to_back=late)
    assert found.labels == (BUSY_HOST,)
    assert found.timing["back_to_back"]["late_s"] == [3e-3] * 15


def test_what_is_not_possible_at_all_is_not_made_again() -> None:
    made = few(rounds(2.7e-3, LONG_S), -1e-3)
    assert doubt(made, DeviceKind.CUDA, LONG_KNOWN) is None
    assert judge_times(made, device=DeviceKind.CUDA, known=LONG_KNOWN).failure is not None


@pytest.mark.parametrize(("extra_s", "explained"), [(0.0, True), (30e-3, True), (60e-3, False)])
def test_on_the_host_device_a_round_is_held_against_the_reference_s_bursts_so_far(
    extra_s: float, explained: bool
) -> None:
    """Two processors beside other work: bursts of calls of 0.1 ms took up to 109 ms more than the reference's, in one
    or two rounds of six."""
    made = rounds(100e-6, 100e-6, 3)
    last = made.held[-1]
    made.held[-1] = replace(
        last,
        reference=replace(last.reference, wall_s=last.reference.wall_s + 60e-3),
        solution_wall_s=last.solution_wall_s + extra_s,
    )
    assert (doubt(made, DeviceKind.HOST, None) is None) is explained
    assert doubt(replace(made, held=made.held[:-1]), DeviceKind.HOST, None) is None


def test_an_interval_ends_timing_from_the_fourth_round_on() -> None:
    rule = SettledTimes(target=0.5, budget_s=60.0)
    ended = [number for number in range(1, 7) if rule(rounds(10e-3, 5e-3, number)) is not None]
    assert ended[0] == 4


@pytest.mark.parametrize(("device", "clock"), [(DeviceKind.HOST, "host clock"), (DeviceKind.CUDA, "CUDA events")])
def test_the_clock_is_named(device: DeviceKind, clock: str) -> None:
    held = judge_times(rounds(1e-3, 5e-4), device=device, known=KNOWN)
    assert held.timing["clock"] == clock


def test_passes_are_medians_of_what_was_marked_and_impossible_claims_are_left_out() -> None:
    made = rounds(1e-3, 2e-3)
    assert made.passes() == {"forward_s": {}, "backward_s": {}}
    for number, held in enumerate(made.held):
        times = tuple(replace(time, forward_s=time.device_s / 4) for time in held.reference.times)
        claims = tuple(
            replace(claim, forward_s=(-1.0 if place == 0 else 9.0 if place == 1 else 0.5e-3))
            for place, claim in enumerate(held.solution.claims)
        )
        reference, solution = replace(held.reference, times=times), replace(held.solution, claims=claims)
        made.held[number] = replace(held, reference=reference, solution=solution)
    passes = made.passes()
    assert passes["forward_s"] == pytest.approx({"reference": 0.25e-3, "solution": 0.5e-3}, rel=1e-2)
    assert passes["backward_s"] == pytest.approx({"reference": 0.75e-3, "solution": 1.5e-3}, rel=1e-2)


def test_work_that_takes_longer_elsewhere_scales_the_times() -> None:
    held = rounds(10e-6, 8e-6)
    found = judge_times(held, device=DeviceKind.CUDA, known=KNOWN, factor=1.25)
    assert found.speedup == pytest.approx(1.0, rel=1e-3)
    assert "1.25 times as long if another process launches it" in found.reason
    claimed = found.timing["solution"]["claimed_samples_s"]
    assert max(map(max, claimed)) == pytest.approx(8e-6, rel=0.05)

"""Compute the speedup from rounds of bursts: judged claims, interval, labels.

Trusted side; takes numbers, returns values for JSON. Nothing is measured here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.stats import (
    NoiseFloor,
    SpeedupEstimate,
    drift_of_bursts,
    noise_floor,
    same_within,
    speedup_interval,
    summarise,
)
from harness.core.status import Failure
from harness.core.task import SettledAt
from harness.devices.empty_kernel import Compared
from harness.protocol.messages import CallMode, LaunchMode
from harness.referee.problem.burst_plan import of_mode
from harness.referee.problem.roofline import SpeedOfLight, TrustFloor
from harness.referee.timing.back_to_back import BackToBackTimes
from harness.referee.timing.calibration import Calibration, beside, calibrate
from harness.referee.timing.claims import SPREADS, ClaimVerdict, Tolerance, judge_claims
from harness.referee.timing.reference_timing import (
    PROCESS_BIAS,
    ProblemCalibration,
    ReferenceTiming,
    halves,
    proves_more,
)
from harness.referee.timing.rounds import LONG_SETS, Round, Rounds
from harness.referee.timing.stopping import GROUP_FLOOR, GroupSettled, Stopping

UNEXPLAINED = "unexplained_time"
"""Label: in most bursts the referee's clock did not explain the claimed times, and conservative times count."""

WAITS_FOR_DEVICE = "waits_for_device"
"""Label: the forward waits for the device, or its calls take long to submit; the wait counts, unless the reference
cannot be queued either.
"""

NOT_QUEUED = "not_queued"
"""Label: the calls failed, were wrong or did not finish when queued, so launch overhead counts, unless the reference
cannot be queued either; or the memory for their copies is used up.
"""

BUSY_HOST = "busy_host"
"""Label: the host's processors were busy while calls with unexplained time were measured: the referee read its clock
late, or the solution waited for a processor.
"""

WAIT_COUNTS = "its forward waits for the device, so the wait counts as its time"
LAUNCHES_COUNT = "its calls cannot be queued, so launch overhead counts as its time"
"""Part of a record's reason if calls count by the referee's clock (rule 6 of `claims.py`)."""

HOST_TOLERANCE = Tolerance(burst_s=40e-3, per_call_s=1e-3, relative=0.25, uneven_s=5e-3)
"""Tolerance on the host device. There, other processes take processors away for time slices of several milliseconds,
possibly only during the solution's bursts; honest code must not be flagged for that. The price: a lie of some ten
milliseconds a call goes unnoticed there.
"""

HOST_BIAS_S = 15e-6
"""Least noise floor of a call on the host device. A contestant that was stopped before takes some ten microseconds
longer for the same work. A torch twin of a call of 60 us came out at 0.60 to 0.86 times on two busy processors.
"""

DISTURBED_BASELINE = "disturbed_baseline"
"""Label: the reference was slower next to this solution than before it was started, beyond the noise floor; the earlier
time counts.
"""

DECIDED_BY = "single calls with a cold cache"
"""The calls that decide the speedup, for short calls too. Each such call has cold data, inputs completed at the last
moment, and a verified output, for any code and on both sides. Back to back, short calls take as long as their launches;
not all code can be captured in a graph; and in both, work on one call's inputs may begin during another call.
"""

CLOCK_CHANGES = math.log(1.02)
"""Least difference of two times of the reference that counts as a disturbance, as a difference of logs: the GPU's
clock changes meanwhile. Beside four of 75 honest solutions the reference was 0.7 to 1.8 % slower than before (H200).
"""

LEAST_ROUNDS = 4
"""Least rounds of any speedup; its interval is checked from then on."""

HIDES_MUCH = 0.25
"""Scatter of trusted bursts, as a share of the reference's call, above which two bursts are too few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTimes:
    """Result of the rounds: a speedup with its evidence, or a failure.

    `by_calibration` says that the failure rests on the cost of trusted bursts (rule 4 of `claims.py`).
    """

    reason: str
    speedup: float | None
    timing: Mapping[str, Any]
    failure: Failure | None
    labels: tuple[str, ...] = ()
    by_calibration: bool = False


def _by_rounds(rounds: Sequence[Round]) -> Calibration:
    """Calibrate by the reference's own bursts.

    They replace trusted bursts if none were made before.
    """
    return calibrate([(r.reference.wall_s, [t.device_s for t in r.reference.times]) for r in rounds])


def _known_calibrations(rounds: Sequence[Round], known: ProblemCalibration | None) -> list[Calibration] | None:
    """Return each round's calibration by trusted bursts; None if there is none.

    The trusted bursts have as many calls as the round.
    """
    if known is None or known.pauses is None:
        return None
    few = known.pauses if known.sparing is None else known.sparing
    return [few if len(held.planned_calls) <= LONG_SETS else known.pauses for held in rounds]


def _own_calibrations(rounds: Rounds) -> list[Calibration]:
    """Return each round's calibration if nothing else is known."""
    together = _by_rounds(rounds.held)
    return [beside(_by_rounds([held]), together) for held in rounds.held]


class SettledTimes:
    """Decide after each round whether the speedup is known well enough.

    A call returns the name of the rule that fired, or None. `settled_at` lets timing end earlier. `calibrated` says
    that claims are judged by bursts made before. Otherwise the time budget ends nothing before `LEAST_ROUNDS` if
    the reference's bursts differ enough to hide much of a call: with two bursts it is unknown which one was
    disturbed.
    """

    def __init__(
        self, *, target: float, budget_s: float, calibrated: bool = True, settled_at: SettledAt | None = None
    ) -> None:
        self._stopping = Stopping(budget_s=budget_s, target=target, least_pairs=LEAST_ROUNDS, settled_at=settled_at)
        self._calibrated = calibrated
        self._spent_s = 0.0

    def __call__(self, rounds: Rounds) -> str | None:
        reference, solution = rounds.samples(CallMode.COLD)
        if not _usable(reference, solution):
            return None
        spent_s = rounds.spent_s - rounds.thrown_s
        newest_s, self._spent_s = spent_s - self._spent_s, spent_s
        rule = self._stopping.add(speedup_interval(reference, solution), newest_s)
        if rule is not None and len(rounds.held) < LEAST_ROUNDS and not self._calibrated:
            median_s = statistics.median(time_s for burst in reference for time_s in burst)
            if SPREADS * _by_rounds(rounds.held).spread_s > HIDES_MUCH * median_s:
                return None
        return rule


def _usable(reference: Sequence[Sequence[float]], solution: Sequence[Sequence[float]]) -> bool:
    return all(burst and min(burst) > 0.0 for burst in (*reference, *solution))


def judge_times(
    rounds: Rounds,
    *,
    device: DeviceKind,
    light: SpeedOfLight | None = None,
    floor: TrustFloor | None = None,
    known: ProblemCalibration | None = None,
    back_to_back: BackToBackTimes | None = None,
    compared: Compared | None = None,
    factor: float = 1.0,
) -> JudgedTimes:
    """Judge the claims of all rounds and estimate the speedup.

    The estimate pairs the bursts by round.

    Args:
        rounds: All rounds of the solution.
        device: Where the solution ran.
        light: Speed of light to record with the times.
        floor: Least time that an honest call can take.
        known: Measurements from before the solution was started, which it cannot have influenced. Without them, the
            reference's own bursts replace those of trusted code.
        back_to_back: The solution's calls back to back.
        compared: Times of empty calls in the solution's process, before the solution was loaded.
        factor: By how much the solution's GPU work takes longer if another process launches it (`relaunching.py`).

    Returns:
        The speedup with its evidence and labels, or the failure.
    """
    quiet = known.quiet if known is not None else None
    calibrations = _known_calibrations(rounds.held, known) or _own_calibrations(rounds)
    if device is DeviceKind.HOST:
        calibrations = [_on_host(calibration) for calibration in calibrations]
    floor_s = floor.floor_s if floor is not None and floor.floor_s > 0.0 else None
    tolerance = HOST_TOLERANCE if device is DeviceKind.HOST else Tolerance()
    verdicts = [
        _judge_round(r, calibration, floor_s, tolerance)
        for r, calibration in zip(rounds.held, calibrations, strict=True)
    ]
    refused = [verdict for verdict in verdicts if not verdict.accepted]
    claims: dict[str, Any] = {
        "bursts": len(verdicts),
        "accepted": len(verdicts) - len(refused),
        "worst": dict(max(verdicts, key=_unexplained).evidence),
        "refused": [verdict.reason for verdict in refused[:3]],
        "made_again": rounds.doubted,
    }
    for verdict in verdicts:
        if verdict.failure is not None:
            return JudgedTimes(
                reason=verdict.reason,
                speedup=None,
                timing={"claims": claims},
                failure=verdict.failure,
                by_calibration=verdict.by_calibration,
            )
    timed, claimed = rounds.samples(CallMode.COLD)
    own_s = 0.0 if compared is None else compared.taken_off_s
    charge_s = 0.0 if back_to_back is None else back_to_back.verdict.charge_s
    proven = back_to_back is not None and back_to_back.proven
    least_s = 0.0 if back_to_back is None else back_to_back.verdict.at_least_s
    by_clock = back_to_back is not None and back_to_back.verdict.by_clock
    claims["charged_rounds"] = [n for n, verdict in enumerate(verdicts) if not (verdict.accepted or proven)]
    solution = (
        [[max(_without(time_s, own_s), least_s) for time_s in burst] for burst in claimed]
        if proven
        else [
            [
                max(_without(time_s, own_s) + charge_s, least_s if by_clock else 0.0)
                for time_s in of_mode(r.planned_calls, verdict.times_s, CallMode.COLD)
            ]
            for r, verdict in zip(rounds.held, verdicts, strict=True)
        ]
    )
    if factor > 1.0:
        solution = [[time_s * factor for time_s in burst] for burst in solution]
    reference, slower = (timed, 1.0) if quiet is None else _undisturbed(timed, solution, quiet)
    estimate = speedup_interval(reference, solution)
    reference_latency, solution_latency = rounds.windows(CallMode.LATENCY)
    timing: dict[str, Any] = {
        "clock": "CUDA events" if device is DeviceKind.CUDA else "host clock",
        "baseline": "eager",
        "solution": _series(solution, solution_latency),
        "reference": _series(reference, reference_latency),
        "speedup": estimate.to_json(),
        "rounds": len(rounds.held),
        "stopped_by": rounds.stopped_by,
        "spent_s": rounds.spent_s,
        "spent_on_s": dict(rounds.spent_on_s),
        "in_line_s": [r.in_line_s for r in rounds.held],
        "order": ["AB" if r.reference_first else "BA" for r in rounds.held],
        "burst_wall_s": {
            "reference": [r.reference.wall_s for r in rounds.held],
            "solution": [r.solution_wall_s for r in rounds.held],
        },
        "sm_clock_hz": {
            "reference": [r.reference.rate_hz for r in rounds.held],
            "solution": [r.solution_hz for r in rounds.held],
        },
        "warmup_calls_discarded": sum(call.mode is CallMode.WARM for r in rounds.held for call in r.planned_calls),
        "claims": claims,
        "quiet_reference_s": None if quiet is None else quiet.reference_s,
        "beside_reference_s": _median(timed),
        "decided_by": DECIDED_BY,
    }
    floor_width = None
    if quiet is not None:
        drift = drift_of_bursts(timed)
        floor_width = max(quiet.floor.log_width, drift)
        timing["noise_floor"] = {**quiet.floor_json(), "log_width": floor_width, "drift_log_width": drift}
        timing["reference"] |= {
            "back_to_back_s": quiet.back_to_back_s,
            "queued_s": quiet.queued_s,
            "graph_s": quiet.graph_s,
        }
    if compared is not None:
        timing["empty_call_s"] = dict(compared.evidence)
    if device is DeviceKind.HOST:
        timing["noise_floor"] = _floor_of_rounds(timed)
        floor_width = timing["noise_floor"]["log_width"]
    if floor_width is not None and rounds.stopped_by == GroupSettled.name:
        floor_width = timing["noise_floor"]["log_width"] = max(floor_width, GROUP_FLOOR)
    hidden_s = claims["worst"].get("hidden_per_call_s")
    if back_to_back is not None:
        timing["solution"] |= {
            "back_to_back_s": back_to_back.seconds.get(LaunchMode.LAUNCHED),
            "queued_s": back_to_back.seconds.get(LaunchMode.QUEUED),
            "graph_s": None,
        }
        timing["back_to_back"] = {
            **back_to_back.verdict.evidence,
            "manner": back_to_back.launch_mode.value,
            "data": back_to_back.data,
            "refused": {launch_mode.value: refusal.text for launch_mode, refusal in back_to_back.refused.items()},
            "waited": back_to_back.waited,
            "late_s": list(back_to_back.late_s),
            "copies_s": list(back_to_back.copied_s),
            "copies_granted_s": back_to_back.copying_s,
        }
        median_s = statistics.median(time_s for burst in solution for time_s in burst)
        hidden_s = min(hidden_s or math.inf, max(0.0, back_to_back.verdict.at_most_s - median_s))
    timing["hidden_per_call_s"] = hidden_s
    if light is not None:
        timing["speed_of_light"] = {
            **light.to_json(),
            "fraction": light.fraction(timing["solution"]["device"]["median_s"]),
            "reference_fraction": light.fraction(timing["reference"]["device"]["median_s"]),
            "floor": None if floor is None else floor.to_json(),
        }
    labels: tuple[str, ...] = (DISTURBED_BASELINE,) if slower > 1.0 else ()
    if back_to_back is not None and back_to_back.waits:
        labels += (WAITS_FOR_DEVICE,)
    if back_to_back is not None and back_to_back.unqueued:
        labels += (NOT_QUEUED,)
    unexplained = charge_s > 0.0 or (2 * len(refused) > len(verdicts) and not proven)
    raised = by_clock and min(time_s for burst in claimed for time_s in burst) < least_s
    if unexplained or raised or factor > 1.0:
        timing["solution"]["claimed_samples_s"] = claimed
    if unexplained:
        labels += (UNEXPLAINED,)
    in_line = any(r.in_line for r, verdict in zip(rounds.held, verdicts, strict=True) if not verdict.accepted)
    if (back_to_back is not None and back_to_back.kept_from_clock) or (in_line and not proven):
        labels += (BUSY_HOST,)
    why = "" if back_to_back is None or not raised else "; " + (WAIT_COUNTS if back_to_back.waits else LAUNCHES_COUNT)
    if factor > 1.0:
        why += f"; its GPU work takes {factor:.3g} times as long if another process launches it, and that time counts"
    if slower > 1.0:
        why += f"; the reference was {slower - 1.0:.1%} slower beside it, so its earlier time counts"
    return JudgedTimes(
        reason=f"right on every input variant; {_in_words(estimate, floor_width)}{why}",
        speedup=estimate.speedup,
        timing=timing,
        failure=None,
        labels=labels,
    )


def peak_memory(
    known: ProblemCalibration, claimed_bytes: int | None, process_bytes: int | None
) -> dict[str, int | None]:
    """Return the peak device memory for a record, in bytes.

    Args:
        known: Measurements of the problem.
        claimed_bytes: The solution's claim: its parameters and what its calls allocate, by torch's allocator, without
            inputs. It excludes memory that its own code takes from the driver.
        process_bytes: Memory that the driver got back when the contestant ended, including CUDA's context and the
            harness's flush buffer.

    Returns:
        `reference` and `solution` by torch's allocator; `solution_process` and `trusted_process` by the driver, the
        latter for a process that only allocates outputs.
    """
    return {
        "reference": known.quiet.peak_bytes,
        "solution": claimed_bytes,
        "solution_process": process_bytes,
        "trusted_process": known.process_bytes,
    }


def with_graph(
    timing: Mapping[str, Any], graph: Callable[[float], tuple[float | None, str | None]]
) -> Mapping[str, Any]:
    """Return a record's `timing` with the time of a call inside a CUDA graph.

    `graph` measures that time. Without back-to-back times, `timing` stays unchanged.
    """
    if "back_to_back" not in timing:
        return timing
    graph_s, refused = graph(timing["solution"]["device"]["median_s"])
    held = dict(timing["back_to_back"])
    if refused is not None:
        held["refused"] = {**held["refused"], LaunchMode.GRAPH.value: refused}
    return {**timing, "solution": {**timing["solution"], "graph_s": graph_s}, "back_to_back": held}


def _floor_of_rounds(bursts: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the noise floor from the reference's bursts within the rounds.

    Used if nothing was measured before the solution was started.
    """
    least = max(PROCESS_BIAS, HOST_BIAS_S / statistics.median(time_s for burst in bursts for time_s in burst))
    paired = [burst for burst in bursts if len(burst) >= 2]
    measured = noise_floor(speedup_interval(*halves(paired))).log_width if paired else 0.0
    return {
        **NoiseFloor(log_width=max(least, measured), pairs=len(paired)).to_json(),
        "measured_log_width": measured,
        "least_log_width": least,
        "method": "bursts of the reference beside the solution's, every other call against the rest",
    }


def _in_words(estimate: SpeedupEstimate, floor_width: float | None) -> str:
    low, high = estimate.low, estimate.high
    if floor_width is not None:
        share = same_within(estimate.speedup, low, high, floor=floor_width)
        if share is not None:
            return f"the same as eager (within {share * 100:.2g} %)"
    words = f"{estimate.speedup:.3g}x eager" + ("" if low is None else f" ({low:.3g} to {high:.3g})")
    if floor_width is not None and abs(math.log(estimate.speedup)) <= floor_width:
        return f"{words}, within the noise floor of {math.expm1(floor_width):.0%}"
    return words


def _undisturbed(
    bursts: Sequence[Sequence[float]], solution: Sequence[Sequence[float]], quiet: ReferenceTiming
) -> tuple[Sequence[Sequence[float]], float]:
    """Scale the reference's samples to its earlier time, if the speedup is smaller.

    It is smaller if the speedups differ beyond the noise floor: what is in the submission's reach must not be worth
    more than the noise of the measurement. The floor is that of the reference alone; the drift between rounds is not
    part of it, because a submission can cause drift. The speedups are compared, not medians of samples: a median does
    not change if fewer than half of the bursts are slower, but the speedup does.

    Returns:
        The samples, and how much smaller the speedup is (1 if the samples are as measured).
    """
    beside = speedup_interval(bursts, solution).speedup
    alone = speedup_interval([[quiet.reference_s]] * len(bursts), solution).speedup
    if beside <= math.exp(max(quiet.floor.log_width, CLOCK_CHANGES)) * alone:
        return bursts, 1.0
    return [[time_s * alone / beside for time_s in burst] for burst in bursts], beside / alone


def _median(bursts: Sequence[Sequence[float]]) -> float:
    return statistics.median([time_s for burst in bursts for time_s in burst])


def doubt(rounds: Rounds, device: DeviceKind, known: ProblemCalibration | None) -> str | None:
    """Return why the last round's claims are not explained; None if they are.

    Impossible claims give None, too: all rounds together convict those. On a GPU the claims are compared with trusted
    bursts; nothing is doubted if there are none, or if calls are short enough for back-to-back bursts, which prove more
    (rule 6 of `claims.py`). On the host device they are compared with the reference's bursts so far.
    """
    held, tolerance = rounds.held[-1], Tolerance()
    if device is DeviceKind.HOST:
        calibration, tolerance = _on_host(_own_calibrations(rounds)[-1]), HOST_TOLERANCE
    else:
        calibrations = _known_calibrations([held], known)
        if known is None or calibrations is None:
            return None
        claimed_s = statistics.median(claim.device_s for claim in held.solution.claims)
        if known.back_to_back and proves_more(claimed_s, known.quiet.back_to_back_sets):
            return None
        calibration = calibrations[0]
    verdict = _judge_round(held, calibration, None, tolerance)
    return None if verdict.accepted or verdict.failure is not None else verdict.reason


def _on_host(calibration: Calibration) -> Calibration:
    """Drop the least cost of a calibration.

    On the host device two processes share the cores in other ways than one, so the least cost of a flush is unknown.
    """
    return replace(calibration, least_s=0.0)


def _judge_round(held: Round, calibration: Calibration, floor_s: float | None, tolerance: Tolerance) -> ClaimVerdict:
    claims = held.solution.claims
    return judge_claims(
        [claim.device_s for claim in claims],
        calls=len(held.planned_calls),
        wall_s=held.solution_wall_s,
        calibration=calibration,
        window_s=[claim.window_s for claim in claims],
        floor_s=floor_s,
        tolerance=tolerance,
        counted=[index for index, call in enumerate(held.planned_calls) if call.mode is CallMode.COLD],
    )


def _without(time_s: float, own_s: float) -> float:
    """Subtract the process's extra time per call from a claimed time.

    `own_s` is the extra time of any call in the solution's process. At least half of the claim remains; no honest GPU
    call is short enough to reach that.
    """
    return max(time_s - own_s, time_s / 2)


def _unexplained(verdict: ClaimVerdict) -> float:
    held = verdict.evidence.get("unexplained_s")
    return float(held) if held is not None else float("inf")


def _series(bursts: Sequence[Sequence[float]], latency_s: Sequence[float]) -> dict[str, Any]:
    """Return the device times of all bursts and the call latency.

    The host clock measures the latency, with a warm cache and an idle device.
    """
    flat = [time_s for burst in bursts for time_s in burst]
    return {
        "device": summarise(flat).to_json(),
        "samples_s": [list(burst) for burst in bursts],
        "latency": summarise(latency_s).to_json() if latency_s else None,
    }

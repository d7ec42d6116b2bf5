"""Decide whether a burst's claimed times are accepted, charged or disqualified.

Trusted side; pure functions of numbers, nothing here measures. A contestant times its own calls, and its code could
replace that clock. It cannot replace the referee's wall clock around the whole burst.

A burst has N calls. Call i claims the device time d_i (sum D) and the host window w_i. The referee's wall clock is W.
The calibrated cost of a call beyond its device time is c, with spread s. The rules, in this order:

1. Possible: N claims, each positive and finite; D and the sum of the w_i at most W; each d_i at most its w_i. Else
   `disqualified`.
2. Speed of light: at most a quarter of the d_i lie below 0.9 of the floor. Else `disqualified`.
3. Explained: U = W - D - N c is at most burst_s + N (per_call_s + 3 s) + relative (D + N c). Else every call counts d_i
   + U / N.
4. Complete: W - D is at least half of N times the least cost of any trusted burst. Else `disqualified`, if a new
   calibration confirms it (`recalibrate.py`).
5. Even: the mean of all calls is at most 1.5 times the median of the counted calls. Else every call counts as the mean.
6. Back to back: calls without flush and pause explain the claims, too (`judge_back_to_back`, for calls below 10 ms).
   Else the unexplained time is added to every call.

See guides/design/claims.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.core.status import Failure, Status
from harness.referee.timing.calibration import Calibration

CLOCK_DRIFT = 1e-3
"""Relative difference allowed between the GPU's clock and the host's; real clocks differ by less than 1e-4."""

CLOCK_SLACK_S = 50e-6
"""Absolute difference allowed because the two clocks are read at different moments, in seconds."""

FLOOR_SHARE = 0.9
"""A time below this share of the floor is impossible; boost clocks exceed the datasheet's by up to 8 %."""

COMPLETE_SHARE = 0.5
"""Share of the least cost of a trusted call that a burst must spend beyond its claimed times (rule 4)."""

FLOOR_CALLS = 0.25
"""Share of the calls below the floor above which a burst is disqualified (rule 2)."""

UNEVEN_FACTOR = 1.5
"""Largest allowed ratio of the mean of all calls to the median of the counted calls (rule 5)."""

SPREADS = 3.0
"""Number of spreads of the trusted bursts' cost that count as explained."""

UNCOUNTED_SLACK_S = 50e-6
"""Launch overhead granted to each uncounted call, in seconds: the flush does not cover a latency call's launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Unexplained time that is accepted: per burst, per call, and relative.

    `relative` is a share of the explained time. `uneven_s` is how far beyond rule 5 the mean of a burst's calls may
    exceed their median. Times are in seconds.
    """

    burst_s: float = 1e-3
    per_call_s: float = 100e-6
    relative: float = 0.03
    uneven_s: float = 0.0

    def __post_init__(self) -> None:
        if min(self.burst_s, self.per_call_s, self.relative, self.uneven_s) < 0.0:
            raise ValueError("the values of a tolerance must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdict:
    """The times that count for one burst, and why.

    `times_s` holds one device time per call, in order: the claims if `accepted`, else the conservative values. It is
    empty if `failure` is set. `reason` is one line. `by_calibration` says that the failure rests on the calibration, so
    a lower calibration could clear it.
    """

    accepted: bool
    times_s: tuple[float, ...]
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    by_calibration: bool = False


def judge_claims(
    device_s: Sequence[float],
    *,
    calls: int,
    wall_s: float,
    calibration: Calibration,
    window_s: Sequence[float] | None = None,
    counted: Sequence[int] | None = None,
    floor_s: float | None = None,
    tolerance: Tolerance | None = None,
) -> ClaimVerdict:
    """Judge the claims of one burst by the referee's wall clock (rules 1 to 5).

    Args:
        device_s: Claimed device seconds per call.
        calls: Number of calls in the burst, by the referee's count.
        wall_s: Seconds from sending the request to receiving the reply, by the referee's clock.
        calibration: Cost of trusted bursts with the same number of flushes and copies.
        window_s: Claimed host seconds per call, from submission to completion.
        counted: Indices of the calls whose times enter the speedup. Default: all.
        floor_s: Least seconds that an honest call can take, or None.
        tolerance: Unexplained time that is accepted. Default: `Tolerance()`.

    Returns:
        The times that count, or a failure with status `disqualified`.

    Raises:
        ValueError: If the referee's own numbers are impossible.
    """
    if calls < 1 or not (math.isfinite(wall_s) and wall_s > 0.0):
        raise ValueError(f"a burst has at least one call and takes time: {calls} calls in {wall_s} s")
    allowed = tolerance or Tolerance()
    if impossible := _find_impossible(device_s, window_s, calls, wall_s):
        return _disqualify(impossible, {"claimed_calls": len(device_s), "calls": calls, "wall_s": wall_s})
    claimed_s = math.fsum(device_s)
    overhead_s = calls * calibration.per_call_s
    unexplained_s = wall_s - claimed_s - overhead_s
    allowed_s = calls * _hidden_per_call(calibration, calls, claimed_s / calls, allowed)
    own = [device_s[i] for i in counted] if counted is not None else list(device_s)
    median_s = statistics.median(own) if own else claimed_s / calls
    mean_s = claimed_s / calls
    evidence: dict[str, Any] = {
        "calls": calls,
        "wall_s": wall_s,
        "claimed_s": claimed_s,
        "overhead_s": overhead_s,
        "unexplained_s": unexplained_s,
        "allowed_s": allowed_s,
        "calibration": calibration.to_json(),
        "hidden_per_call_s": allowed_s / calls,
        "mean_s": mean_s,
        "median_s": median_s,
        "floor_s": floor_s,
    }
    if window_s is not None:
        # These tell whether the missing time lies within the calls' windows or between them.
        evidence["in_windows_s"] = math.fsum(window_s) - claimed_s
        evidence["between_windows_s"] = wall_s - math.fsum(window_s)
    if floor_s is not None:
        below = sum(1 for value in device_s if value < FLOOR_SHARE * floor_s)
        evidence["below_floor"] = below
        if below > FLOOR_CALLS * calls:
            return _disqualify(
                f"{below} of {calls} calls claim less than the {_show(floor_s)} that this device needs at least "
                f"(median claim: {_show(median_s)})",
                evidence,
            )
    if wall_s - claimed_s < COMPLETE_SHARE * calls * calibration.least_s:
        incomplete = _disqualify(
            f"the claimed kernel times leave {_show(wall_s - claimed_s)} for {calls} cache flushes and output copies, "
            f"which take at least {_show(calls * calibration.least_s)}: the times are false or a flush was skipped",
            evidence,
        )
        return replace(incomplete, by_calibration=True)
    if unexplained_s > allowed_s:
        share_s = unexplained_s / calls
        return ClaimVerdict(
            accepted=False,
            times_s=tuple(value + share_s for value in device_s),
            reason=f"{_show(unexplained_s)} of the burst's {_show(wall_s)} are not explained by the claimed times "
            f"(allowed: {_show(allowed_s)}): {_show(share_s)} is added to every call",
            evidence=evidence,
        )
    slack_s = (calls - len(own)) * UNCOUNTED_SLACK_S / calls + allowed.uneven_s
    if own and mean_s > UNEVEN_FACTOR * median_s + slack_s:
        return ClaimVerdict(
            accepted=False,
            times_s=(mean_s,) * calls,
            reason=f"the calls of the burst are uneven (mean {_show(mean_s)}, median {_show(median_s)}): "
            "every call counts as the mean",
            evidence=evidence,
        )
    return ClaimVerdict(
        accepted=True,
        times_s=tuple(device_s),
        reason=f"the claims explain the wall clock up to {_show(max(unexplained_s, 0.0))} of {_show(wall_s)}",
        evidence=evidence,
    )


def _hidden_per_call(calibration: Calibration, calls: int, device_s: float, tolerance: Tolerance) -> float:
    return (
        tolerance.burst_s / calls
        + tolerance.per_call_s
        + SPREADS * calibration.spread_s
        + tolerance.relative * (device_s + calibration.per_call_s)
    )


def _find_impossible(
    device_s: Sequence[float], window_s: Sequence[float] | None, calls: int, wall_s: float
) -> str | None:
    """Return the first breach of rule 1 in words, or None."""
    if len(device_s) != calls:
        return f"{len(device_s)} times were claimed for {calls} calls"
    if window_s is not None and len(window_s) != calls:
        return f"{len(window_s)} windows were claimed for {calls} calls"
    for index, value in enumerate(device_s):
        if not (math.isfinite(value) and value > 0.0):
            return f"call {index} claims a time of {value} s, which is not a positive finite number"
    most_s = wall_s * (1.0 + CLOCK_DRIFT) + CLOCK_SLACK_S
    if (claimed_s := math.fsum(device_s)) > most_s:
        return f"the claimed times add up to {_show(claimed_s)}, more than the {_show(wall_s)} of the whole burst"
    for index, (device, window) in enumerate(zip(device_s, window_s or (), strict=False)):
        if not (math.isfinite(window) and window > 0.0):
            return f"call {index} claims a window of {window} s, which is not a positive finite number"
        if device > window * (1.0 + CLOCK_DRIFT) + CLOCK_SLACK_S:
            return f"call {index} claims a device time of {_show(device)} inside a window of {_show(window)}"
    if window_s is not None and (windows_s := math.fsum(window_s)) > most_s:
        return f"the claimed windows add up to {_show(windows_s)}, more than the {_show(wall_s)} of the whole burst"
    return None


def _disqualify(reason: str, evidence: Mapping[str, Any]) -> ClaimVerdict:
    failure = Failure(
        status=Status.disqualified, reason=f"impossible times: {reason}", evidence={"claims": dict(evidence)}
    )
    return ClaimVerdict(accepted=False, times_s=(), reason=failure.reason, evidence=evidence, failure=failure)


def _show(seconds: float) -> str:
    """Format a duration for a reason: three digits in a suitable unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


QUEUED = Tolerance(burst_s=20e-6, per_call_s=2e-6, relative=0.02)
"""Tolerance of rule 6 for queued calls, during which only the device works. Measured on an H200 with 45 honest
solutions (34 us to 2.3 ms a call): none had more than 1.9 us unexplained a call. 37 had less than nothing, because the
window of a single call includes its launch. Without pauses a GPU may run at lower clocks.
"""

LAUNCHED = Tolerance(burst_s=300e-6, per_call_s=5e-6, relative=0.05)
"""Tolerance of rule 6 for calls launched one by one: starting and stopping a process varies by some hundred us."""

MOST_TAKEN_OFF = 0.5
"""Largest share of a launched call's wall time that is subtracted as launch overhead. Without this limit, a graph of
calls claimed at a tenth of their time passed as ten times faster (H200 with a slow host: 112.8 us a call by the clock,
calibrated launch overhead 109.0 us, true time 50 us).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackToBackVerdict:
    """Result of rule 6; all times in seconds a call.

    `charge_s` is added to every claimed time; it is 0 if the claims are explained. `at_most_s` is an upper bound of a
    call's true time, whatever was claimed. `at_least_s` is the referee's clock less everything that is granted: no
    claim counts for less. `by_clock` says that the reference's calls could be queued but the solution's could not, so
    each call counts at least `at_least_s`.
    """

    charge_s: float
    at_most_s: float
    at_least_s: float
    reason: str
    evidence: Mapping[str, Any]
    by_clock: bool = False


def judge_back_to_back(
    walls_s: Sequence[float],
    *,
    calls: int,
    claimed_s: float,
    latency_s: float | None,
    calibration: Calibration,
    tolerance: Tolerance,
    by_clock: bool = False,
    whole: bool = False,
) -> BackToBackVerdict:
    """Judge claims by back-to-back bursts (rule 6); the shortest burst counts.

    Args:
        walls_s: The referee's seconds around each burst.
        calls: Number of calls in each burst.
        claimed_s: Median of the accepted claims, in seconds a call.
        latency_s: Median of the claimed latencies, in seconds a call; None if launch overhead does not count as
            explained.
        calibration: Cost of trusted bursts of the same launch mode, with their device times taken as 0.
        tolerance: `QUEUED` or `LAUNCHED`.
        by_clock: The calls are launched because they could not be queued, although the reference's could.
        whole: With `by_clock`, subtract no launch overhead: the calls failed or were wrong when queued.

    Returns:
        The charge per call and the bounds of a call's true time.

    Raises:
        ValueError: If the referee's own numbers are impossible.
    """
    if calls < 1 or not walls_s or not all(math.isfinite(wall_s) and wall_s > 0.0 for wall_s in walls_s):
        raise ValueError(f"a burst has at least one call and takes time: {calls} calls in {list(walls_s)} s")
    at_most_s = min(walls_s) / calls
    own_s = max(claimed_s, latency_s or 0.0)
    explained_s = calibration.per_call_s + own_s
    allowed_s = _hidden_per_call(calibration, calls, own_s, tolerance)
    unexplained_s = at_most_s - explained_s
    accepted = unexplained_s <= allowed_s
    taken_off_s = 0.0 if whole else min(calibration.least_s, MOST_TAKEN_OFF * at_most_s)
    granted_s = taken_off_s if by_clock else calibration.per_call_s + allowed_s
    at_least_s = max(0.0, at_most_s - granted_s)
    evidence = {
        "calls": calls,
        "wall_s": list(walls_s),
        "at_most_s": at_most_s,
        "at_least_s": at_least_s,
        "by_clock": by_clock,
        "claimed_s": claimed_s,
        "latency_s": latency_s,
        "calibration": calibration.to_json(),
        "unexplained_per_call_s": unexplained_s,
        "allowed_per_call_s": allowed_s,
        "accepted": accepted,
    }
    if accepted:
        reason = f"back to back, a call takes at most {_show(at_most_s)}"
    else:
        reason = (
            f"back to back, a call takes {_show(at_most_s)}, of which {_show(unexplained_s)} are not explained by the "
            f"claimed {_show(claimed_s)} (allowed: {_show(allowed_s)}): the unexplained time is added to every call"
        )
    return BackToBackVerdict(
        charge_s=0.0 if accepted else unexplained_s,
        at_most_s=at_most_s,
        at_least_s=at_least_s,
        reason=reason,
        evidence=evidence,
        by_clock=by_clock,
    )

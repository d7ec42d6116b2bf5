"""Whether the device times that a contestant claims for a burst are accepted.

Imports `calibration` and `model`. Pure: floats in, a verdict out; trusted side. Nothing here measures.

A contestant times its own calls, on a clock that its own code could have replaced. What it can't replace is the
referee's wall clock around the whole burst, from the request's sending to the reply's arrival. With

    N   calls of the burst (all: warm-up and latency calls too)
    d_i device time claimed for call i, D their sum          w_i host window claimed for call i
    W   the referee's wall clock over the burst
    c   wall time per call that is no call: flush, copies, synchronising, Python; calibrated on bursts of code that the
        referee trusts, as the median of (W - D) / N; s its spread between bursts (1.4826 times the MAD). Some
        milliseconds of a burst are there whatever N is: so bursts of few calls are held against such ones of their own

the rules are, in this order:

1. **Possible.** As many claims as calls; every d_i finite and above zero; D and the sum of the w_i at most W, every
   d_i at most its w_i, each up to the drift between two clocks. A breach can't come from honest code: `disqualified`.
2. **Speed of light.** No more than a quarter of the d_i below 0.9 of the floor, if there is one (`roofline.trust_floor`
   never lies above what honest code can reach). A breach is `disqualified`.
3. **Explained.** The unexplained time U = W - D - N c is at most

       A = burst_s + N (per_call_s + 3 s) + relative (D + N c)

   else the claims are not accepted and every call is charged its share: d_i + U / N, which sums to what the wall
   clock saw. That alone convicts nobody: a busy machine looks the same. So up to four such rounds are made again
   (`measure.MOST_DOUBTED`) where rule 6 is not to decide, more for some seconds where the solution's threads stood in
   line for a processor (`measure.MOST_THROWN_S`): who lies in every round pays all the same.
4. **Complete.** W - D is at least 0.5 of N times the least cost that any trusted burst had. Less means that something
   which must be done for each call, the flush or a copy, was left out, and then the d_i were not taken with a cold
   cache. A breach is `disqualified`, if it is one by later calibrations too (see below).
5. **Even.** The mean over all calls is at most 1.5 times the median of the counted ones, plus what uncounted calls
   (warm-up, latency) may take for launches. Else the work of several calls was done in one of them (all inputs of a
   burst lie in memory when it begins), and every call is charged the mean.

6. **Back to back.** For calls of less than ten milliseconds the flushes and pauses of a burst leave room for lies. So N
   more calls (`quiet.sets_without_pause`) are made over other fresh inputs with no flush, no pause and no message
   between them. Where the code allows it they are *queued*: all of them submitted behind a gate on the stream while the
   process runs, which is then stopped; only then the inputs come, and W is the referee's clock from opening the gate
   until the device reports the last one done (`harness/devices/stream_gate.py`), and beyond that what copying the
   outputs aside takes longer than behind trusted code: it is the contestant's device that reports, and what it still
   has to do holds the copies up. With c the same per call for code that the referee trusts, s its spread, and d the
   median of the accepted claims, the unexplained time a call, W / N - c - d, is at most

       burst_s / N + per_call_s + 3 s + relative (c + d)          (`QUEUED`)

   in one of up to three such bursts, else every call is charged the least of it. One of which the referee read its
   clock late, as it knows by its last look before, is none of the three (`nonstop.MOST_LATE`). Where it is less, rules
   3 and 5 charge nothing any more: what they found was a busy machine; but no single claim counts for less than W / N -
   c less what is granted, or two calls in five could be claimed as nothing beside a true median.

   Calls that can't be queued (their forward waits for the device, which is believed at the third time; they fail there,
   or are wrong) are launched one by one, with W from telling the stopped process to begin until it is stopped. Which
   part of it is launching, waiting or computing only that process could say. So where the reference can be queued, all
   of W counts but what launched bursts of trusted code take at the least, c' per call: each call counts for

       W / N - min(c', W / 2 N)                                  (`by_clock`)

   at least, by the least W of three bursts. Who calls a forward that waits pays for that wait, too; code that pretends
   to wait can hide c' at most, and never more than half: a process that spares itself what launching takes has W = N t,
   and c' is twice such a t on a machine whose processors are slow. That charges, and does not accuse. What does is the
   formula above with the tolerance `LAUNCHED`, in which the median claimed latency l, which is at least d, takes the
   place of d (launches that a flush hides show here) for code that waits. Code that fails where it is queued, or is
   wrong there, gets no such grant, and nothing is taken off: each of its calls counts for W / N at least (`whole`).
   Code that is right need not fail there, and c' is no small part of a call of some ten microseconds.
   Where the reference can't be queued either (it waits, or has more launches than a queue holds), or the referee has no
   memory for it, that formula is all there is, and a liar may claim a long latency.

   Whatever was claimed, a call took no more than W / N, which the record states (`at_most_s`): a lie is smaller than
   W / N - d. (Calls that leave most of the GPU idle could overlap; and their data may be in the cache, which the record
   states too.)

**Calibrations.** What slows a machine down makes a calibration too high, never too low. That is lenient in rules 3 and
6: so the bursts of trusted code are made anew, some times at most, while another process works on the GPU or they
differ among themselves (`Calibration.agrees`); a calm calibration counts before a disturbed one, and of two alike the
lower (`calibration.lower_of`). In rule 4 it accuses: so before that rule convicts, trusted code is timed again, beside
which a liar gains nothing, since the least cost of all bursts ever made of the problem counts,

    W - D < 0.5 N min(least cost before, least cost now),

and it convicts only where the last calibration was calm: else nothing is known, which is no verdict (`retrial`).
Where no such bursts were made (on the host device), each burst is held against the reference's beside it, with the
lower of what that one cost and the median of all (`calibration.beside`); rule 4 is not applied there.

**Power.** A liar whose calls truly take t and are claimed as t - u passes rule 3 as long as N u <= A + N k, where k is
how much of c its process manages to skip (0 <= k <= c: an L2 flush or a copy left out). So the largest lie that goes
unnoticed is

    u = burst_s / N + per_call_s + 3 s + relative (t + c) + k

per call (`hidden_per_call_s` of the evidence, and k) by rule 3, and by rule 6 the same with `QUEUED` and the c of
queued calls, which is all that k can be: what copying a call's outputs takes (11 to 306 us in 68 runs on an H200), for
code that writes them to where they are copied to. Where calls count by the clock it is c' (42 to 185 us for four
problems on H200s), but no more than t / 2, for a liar that does not wait there, spares itself what the harness does for
a call in its process, and so has W = N t. A device that tells the end of queued calls too early gains what copying them
aside may differ by, divided by N. The largest false speedup is t / (t - u). At t much above u the rule is tight: with
the defaults, N = 8, c = 0.2 ms and s = 10 us, u is 0.26 ms + 3 % of t: at t = 9 ms a lie of 6 % is caught. Longer calls
are made four at a time, for which u is 0.39 ms + 3 % of t: at t = 20 ms a lie of 5 % is caught. At t = 50 us it proves
nothing, and rules 2, 4, 5 and 6 have to do the work. (More calls a burst shrink burst_s / N alone: for short ones no
number suffices.) Of two flushes, which cover launches on busy machines too, the second empties nothing any more: who
leaves it out has some 0.15 ms of k on an H200, and no warmer cache.
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
"""Relative difference allowed between the GPU's clock and the host's; real ones differ by less than 1e-4."""

CLOCK_SLACK_S = 50e-6
"""Absolute difference allowed for where the two clocks are read."""

FLOOR_SHARE = 0.9
"""A time below this share of the floor is faster than light: boost clocks exceed the datasheet's by up to 8 %."""

COMPLETE_SHARE = 0.5
"""Part of the least cost of a call by trusted code that a burst must spend beside the times it claims."""

FLOOR_CALLS = 0.25
"""Share of the calls that must lie below before it convicts."""

UNEVEN_FACTOR = 1.5
"""How far the mean of all calls may lie above the median of the counted ones."""

SPREADS = 3.0
"""How many times what bursts of trusted code differ by is let pass."""

UNCOUNTED_SLACK_S = 50e-6
"""Launch cost granted to each uncounted call: a latency call's launch is not covered by the flush."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How much unexplained time passes: seconds per burst and per call, and a share of the explained time.

    `uneven_s` is how far beyond rule 5 the mean of a burst's calls may lie above their median, in seconds.
    """

    burst_s: float = 1e-3
    per_call_s: float = 100e-6
    relative: float = 0.03
    uneven_s: float = 0.0

    def __post_init__(self) -> None:
        if min(self.burst_s, self.per_call_s, self.relative, self.uneven_s) < 0.0:
            raise ValueError("a tolerance is not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdict:
    """What counts of a burst.

    `times_s` holds one device time per call, in order: the claims where `accepted`, else the conservative figures;
    empty where `failure` says that the burst counts for nothing. `reason` is one line. `by_calibration` says that
    a lower calibration could have spared it.
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
    """Hold the claims of one burst against the referee's wall clock; the module's docstring states the rules.

    `device_s` and `window_s` are claims, per call, in any numbers; `calls`, `wall_s` and `calibration` are the
    referee's own. A window lasts from a call's submission to its completion. `counted` are the indices of calls whose
    times go into the speedup (default: all). `floor_s` is the least time a call can honestly take.

    Raises `ValueError` where the referee's own numbers are impossible.
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
        # Which part the missing time is in: beside the call in its window, or between the windows.
        evidence["in_windows_s"] = math.fsum(window_s) - claimed_s
        evidence["between_windows_s"] = wall_s - math.fsum(window_s)
    if floor_s is not None:
        below = sum(1 for value in device_s if value < FLOOR_SHARE * floor_s)
        evidence["below_floor"] = below
        if below > FLOOR_CALLS * calls:
            return _disqualify(
                f"{below} of {calls} calls claim less than the {_show(floor_s)} that this device needs at the least "
                f"(median {_show(median_s)})",
                evidence,
            )
    if wall_s - claimed_s < COMPLETE_SHARE * calls * calibration.least_s:
        incomplete = _disqualify(
            f"{_show(wall_s - claimed_s)} beside the claimed times are too little for {calls} flushes and copies, "
            f"which took at least {_show(calls * calibration.least_s)} elsewhere",
            evidence,
        )
        return replace(incomplete, by_calibration=True)
    if unexplained_s > allowed_s:
        share_s = unexplained_s / calls
        return ClaimVerdict(
            accepted=False,
            times_s=tuple(value + share_s for value in device_s),
            reason=f"{_show(unexplained_s)} of the burst's {_show(wall_s)} are not explained by the claimed times "
            f"({_show(allowed_s)} would be): every call is charged {_show(share_s)} more",
            evidence=evidence,
        )
    slack_s = (calls - len(own)) * UNCOUNTED_SLACK_S / calls + allowed.uneven_s
    if own and mean_s > UNEVEN_FACTOR * median_s + slack_s:
        return ClaimVerdict(
            accepted=False,
            times_s=(mean_s,) * calls,
            reason=f"the calls of the burst are uneven, on average {_show(mean_s)} for a median of {_show(median_s)}: "
            "every call is charged the average",
            evidence=evidence,
        )
    return ClaimVerdict(
        accepted=True,
        times_s=tuple(device_s),
        reason=f"the wall clock explains the claims up to {_show(max(unexplained_s, 0.0))} of {_show(wall_s)}",
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
    """The first breach of rule 1 in words."""
    if len(device_s) != calls:
        return f"{len(device_s)} times were claimed for {calls} calls"
    if window_s is not None and len(window_s) != calls:
        return f"{len(window_s)} windows were claimed for {calls} calls"
    for index, value in enumerate(device_s):
        if not (math.isfinite(value) and value > 0.0):
            return f"call {index} claims {value} s, which is no duration"
    most_s = wall_s * (1.0 + CLOCK_DRIFT) + CLOCK_SLACK_S
    if (claimed_s := math.fsum(device_s)) > most_s:
        return f"the claimed times add up to {_show(claimed_s)}, more than the {_show(wall_s)} that the burst took"
    for index, (device, window) in enumerate(zip(device_s, window_s or (), strict=False)):
        if not (math.isfinite(window) and window > 0.0):
            return f"call {index} claims a window of {window} s, which is no duration"
        if device > window * (1.0 + CLOCK_DRIFT) + CLOCK_SLACK_S:
            return f"call {index} claims {_show(device)} on the device inside a window of {_show(window)}"
    if window_s is not None and (windows_s := math.fsum(window_s)) > most_s:
        return f"the claimed windows add up to {_show(windows_s)}, more than the {_show(wall_s)} that the burst took"
    return None


def _disqualify(reason: str, evidence: Mapping[str, Any]) -> ClaimVerdict:
    failure = Failure(
        status=Status.disqualified, reason=f"impossible times: {reason}", evidence={"claims": dict(evidence)}
    )
    return ClaimVerdict(accepted=False, times_s=(), reason=failure.reason, evidence=evidence, failure=failure)


def _show(seconds: float) -> str:
    """A duration for a reason: three digits in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


QUEUED = Tolerance(burst_s=20e-6, per_call_s=2e-6, relative=0.02)
"""What rule 6 grants to calls that the device makes by itself. Of 45 honest solutions on an H200 (34 us to 2.3 ms a
call) none had more than 1.9 us unexplained, and 37 less than nothing: a single call's window holds its launch. Without
pauses a GPU may run at lower clocks."""

LAUNCHED = Tolerance(burst_s=300e-6, per_call_s=5e-6, relative=0.05)
"""What it grants to calls that are launched one by one: starting and stopping a process differs by some hundred us."""

MOST_TAKEN_OFF = 0.5
"""Of a launched call's wall time, for what launching it takes. A graph of calls claimed at a tenth, on an H200 beside
slow processors: 112.8 us a call by the clock, c' 109.0 us, 50 us in truth; it passed for ten times as fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackToBackVerdict:
    """What calls without a pause prove. Seconds a call.

    `charge_s` is to be added to every claimed time, 0 where the claims are explained. `at_most_s` bounds what a call
    can have taken, whatever was claimed; `at_least_s` is what it took by the referee's clock less all that is granted:
    no claim below that is explained, even where the median of them is. `by_clock` says that the calls could not be
    queued although the reference's could, and that they count for that much whatever else explains them.
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
    """Rule 6 over bursts of `calls` calls each, of which the least unexplained one counts.

    `claimed_s` and `latency_s` are medians of claims a call; the latter is None where launches do not count.
    `calibration` is of trusted bursts of the same manner, their device times taken as nothing. `by_clock` is for
    launched calls that could not be queued although the reference's could; `whole` says that nothing is taken off then,
    because they failed or were wrong where they were queued. Raises `ValueError` where the referee's own numbers are
    impossible.
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
        reason = f"without pauses a call takes {_show(at_most_s)} at most"
    else:
        reason = (
            f"without pauses a call takes {_show(at_most_s)}, of which {_show(unexplained_s)} are not explained by the "
            f"claimed {_show(claimed_s)} ({_show(allowed_s)} would be): every call is charged that much more"
        )
    return BackToBackVerdict(
        charge_s=0.0 if accepted else unexplained_s,
        at_most_s=at_most_s,
        at_least_s=at_least_s,
        reason=reason,
        evidence=evidence,
        by_clock=by_clock,
    )

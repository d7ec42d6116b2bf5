"""Two records, or two runs, side by side: faster, slower, same, or can't tell; and what got worse.

Pure; imports the vocabulary, `stats` and `scoring`. (`comparison` is about the values of outputs, this about results.)

**What is compared.** The speedups against eager, whatever baseline the records' own are against: each was measured with
its reference by turns, so that the clocks and the temperature of its day cancel, and the quotient of the two is how
much faster the later solution is. A speedup's
interval comes from the record's raw samples where they give the speedup that it states, else from the interval that it
states; the quotient's ends add in squares (`stats.quotient`). That holds only among like records: same device kind,
processor, driver, torch, workload, precision and problem text. Others are refused; where they are forced, the
solutions' own times are compared, by the medians of their bursts.

**What counts as a difference.** A measurement repeated another day is off by more than its interval says. So the
interval has to lie beyond a noise floor, the largest of what the records measured and `REPEATABILITY`; and "same" needs
positive proof: the whole interval inside the floor or the tolerance, whichever is wider. A floor that is wider than
the tolerance and than `stats.SAME_AT_MOST` proves nothing. All else is "can't tell".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.stats import SAME_AT_MOST, SpeedupEstimate, interval_of_logs, quotient, same_within, speedup_interval
from harness.core.status import VERDICT_FREE, Status
from harness.results.scoring import EAGER, main_baseline

TOLERANCE = 0.02
"""How much longer a call may take before it counts as a regression, by default: a share of the earlier time."""

SHORT_S = 50e-6
REPEATABILITY = {"long": 0.01, "short": 0.03}
"""Spread of a speedup over separate runs that is taken for noise, as a difference of logs: for calls from `SHORT_S`
on, and for shorter ones. The same five solutions in two runs on one H200 (`results/h200-transcripts-cold`, `-warm`)
differ by 0.6 % at most, some with intervals that do not touch."""

WITHIN_RUN = 0.005
"""The same for two solutions measured in one run: the width at which a measurement ends."""

COMPARISON_FORMAT = 1

UNKNOWN = "unknown"
"""A condition that a record does not tell. Two that both don't are compared, and the reader is told."""


class Change(StrEnum):
    """What became of one solution from the earlier result to the later."""

    faster = "faster"
    """The whole interval lies beyond the noise floor."""
    slower = "slower"
    """The whole interval lies beyond the noise floor on the other side."""
    same = "same"
    """The whole interval lies inside the noise floor or the tolerance, and that floor is narrow enough to say so."""
    unclear = "unclear"
    """Neither: measure longer (`harness eval --timing-budget`)."""
    broken = "broken"
    """Passed before and no longer does."""
    fixed = "fixed"
    """Did not pass before and does now."""
    failing = "failing"
    """Passed neither before nor now."""
    untimed = "untimed"
    """Right both times; one or both without a time, as where CUDA sources ran on the CPU."""
    unjudged = "unjudged"
    """One of the two says nothing about the solution (harness_error, not_emulated, unsupported)."""
    unlike = "unlike"
    """Measured under other conditions; not compared."""
    added = "added"
    """Only among the later ones."""
    removed = "removed"
    """Only among the earlier ones."""


WORDS = {Change.unclear: "can't tell", Change.unlike: "not compared", Change.unjudged: "no verdict"}
"""Outcomes whose name is not how they are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionDifference:
    """One solution (or pair of solutions) compared.

    `ratio` above 1: the later one is faster so many times, within `low` and `high` (95 %). `basis` is what it is the
    ratio of: `speedup` or `time`. `floor` is the noise floor that was applied, a difference of logs. Speedups are
    against eager, with the share within which they are none where their session's noise floor says so. Times are
    seconds a call. `unlike` names the conditions that differ, `name: before, after`; `unknown` what neither tells.
    """

    problem: str
    solution: str
    later_solution: str
    outcome: Change
    regressed: bool
    before: Status | None = None
    after: Status | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    basis: str | None = None
    floor: float | None = None
    before_speedup: float | None = None
    after_speedup: float | None = None
    before_same_within: float | None = None
    after_same_within: float | None = None
    before_s: float | None = None
    after_s: float | None = None
    unlike: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "problem": self.problem,
            "solution": self.solution,
            "later_solution": self.later_solution,
            "outcome": self.outcome.value,
            "regressed": self.regressed,
            "before": self.before.value if self.before else None,
            "after": self.after.value if self.after else None,
            "ratio": self.ratio,
            "low": self.low,
            "high": self.high,
            "basis": self.basis,
            "floor": self.floor,
            "before_speedup": self.before_speedup,
            "after_speedup": self.after_speedup,
            "before_same_within": self.before_same_within,
            "after_same_within": self.after_same_within,
            "before_s": self.before_s,
            "after_s": self.after_s,
            "unlike": list(self.unlike),
            "unknown": list(self.unknown),
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifferences:
    """Two runs compared. `tolerance` is a share of the earlier time."""

    rows: tuple[SolutionDifference, ...]
    tolerance: float
    forced: bool

    @property
    def regressions(self) -> tuple[SolutionDifference, ...]:
        """What got slower than the tolerance, or stopped passing."""
        return tuple(row for row in self.rows if row.regressed)

    @property
    def compared(self) -> int:
        """How many were in both runs with a verdict, and alike (or forced)."""
        left_out = (Change.unlike, Change.unjudged, Change.added, Change.removed)
        return sum(1 for row in self.rows if row.outcome not in left_out)

    def counts(self) -> dict[Change, int]:
        """How many ended how, in the order of `Change`, those that are none left out."""
        counted = Counter(row.outcome for row in self.rows)
        return {outcome: counted[outcome] for outcome in Change if counted[outcome]}

    def to_json(self) -> dict[str, Any]:
        return {
            "format": COMPARISON_FORMAT,
            "tolerance": self.tolerance,
            "forced": self.forced,
            "regressions": len(self.regressions),
            "counts": {outcome.value: number for outcome, number in self.counts().items()},
            "rows": [row.to_json() for row in self.rows],
        }


def compare_runs(
    before: Iterable[Record], after: Iterable[Record], *, tolerance: float = TOLERANCE, force: bool = False
) -> RunDifferences:
    """Pair the records of two runs by problem, solution, device and workload, and compare each pair.

    Of several records of one identity the last counts. A solution that stands in each run once, on another device or
    workload, is paired too, and told to be unlike. Raises `ValueError` for a tolerance that is not in [0, 1).
    """
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"a tolerance is a share of the earlier time, from 0 to below 1, not {tolerance}")
    old, new = ({record.identity: record for record in records} for records in (before, after))
    pairs: list[tuple[Record | None, Record | None]] = [(old[key], new[key]) for key in old.keys() & new.keys()]
    left = {key: record for key, record in old.items() if key not in new}
    right = {key: record for key, record in new.items() if key not in old}
    elsewhere = _single(right)
    for name, key in _single(left).items():
        if name in elsewhere:
            pairs.append((left.pop(key), right.pop(elsewhere[name])))
    pairs += [(record, None) for record in left.values()]
    pairs += [(None, record) for record in right.values()]
    rows = [_row(a, b, tolerance, force) for a, b in pairs]
    return RunDifferences(
        rows=tuple(sorted(rows, key=lambda row: (row.problem, row.solution, row.outcome))),
        tolerance=tolerance,
        forced=force,
    )


def _single(held: Mapping[tuple[str, str, str, str], Record]) -> dict[tuple[str, str], tuple[str, str, str, str]]:
    """Identities by problem and solution, of those that stand there once."""
    counted = Counter(key[:2] for key in held)
    return {key[:2]: key for key in held if counted[key[:2]] == 1}


def _row(before: Record | None, after: Record | None, tolerance: float, force: bool) -> SolutionDifference:
    if before is not None and after is not None:
        return compare_records(before, after, tolerance=tolerance, force=force)
    record = before or after
    assert record is not None
    return SolutionDifference(
        problem=record.problem,
        solution=record.solution,
        later_solution=record.solution,
        outcome=Change.removed if before else Change.added,
        regressed=False,
        before=before.status if before else None,
        after=after.status if after else None,
        reason=record.reason,
        **_speeds(before, after),
    )


def _speeds(before: Record | None, after: Record | None) -> dict[str, Any]:
    """What each says by itself: its speedup against eager, whether that is one, and its time."""
    held: dict[str, Any] = {}
    for name, record in (("before", before), ("after", after)):
        found = None if record is None else estimate_of(record)
        held[f"{name}_speedup"] = None if found is None else found.speedup
        held[f"{name}_same_within"] = None if record is None or found is None else _same(record, found)
        held[f"{name}_s"] = None if record is None else solution_s(record)
    return held


def _same(record: Record, found: SpeedupEstimate) -> float | None:
    floor = _positive(_inner(record.timing, "noise_floor").get("log_width"))
    return None if floor is None else same_within(found.speedup, found.low, found.high, floor=floor)


def compare_records(
    before: Record, after: Record, *, tolerance: float = TOLERANCE, force: bool = False, within_run: bool = False
) -> SolutionDifference:
    """Compare two records: of one solution in two runs, or (`within_run`) of two solutions in one."""
    unlike = unlikeness(before, after)
    held: dict[str, Any] = {
        "problem": before.problem,
        "solution": before.solution,
        "later_solution": after.solution,
        "before": before.status,
        "after": after.status,
        "unlike": unlike,
        "unknown": tuple(name for name, value in conditions(before).items() if value == UNKNOWN and not unlike),
        "reason": after.reason,
        **_speeds(before, after),
    }
    if unlike and not force:
        return SolutionDifference(outcome=Change.unlike, regressed=False, **held)
    if before.status in VERDICT_FREE or after.status in VERDICT_FREE:
        return SolutionDifference(outcome=Change.unjudged, regressed=False, **held)
    passed = (before.status is Status.passed, after.status is Status.passed)
    if not all(passed):
        outcome = Change.broken if passed[0] else Change.fixed if passed[1] else Change.failing
        return SolutionDifference(outcome=outcome, regressed=outcome is Change.broken, **held)
    basis = "time" if unlike else "speedup"
    old, new = ((_speed if unlike else estimate_of)(record) for record in (before, after))
    if old is None or new is None:
        return SolutionDifference(outcome=Change.untimed, regressed=False, **held)
    ratio = quotient(new, old)
    floor = noise_floor(before, after, within_run=within_run)
    outcome = decide(ratio, floor=floor, tolerance=tolerance)
    return SolutionDifference(
        outcome=outcome,
        regressed=outcome is Change.slower and ratio.speedup < 1.0 / (1.0 + tolerance),
        ratio=ratio.speedup,
        low=ratio.low,
        high=ratio.high,
        basis=basis,
        floor=floor,
        **held,
    )


def decide(ratio: SpeedupEstimate, *, floor: float, tolerance: float) -> Change:
    """The rule of the module's docstring; `floor` is a difference of logs, `tolerance` a share of time."""
    if ratio.low is None or ratio.high is None:
        return Change.unclear
    low, high = math.log(ratio.low), math.log(ratio.high)
    if low > floor:
        return Change.faster
    if high < -floor:
        return Change.slower
    margin = max(floor, math.log1p(tolerance))
    hides_much = floor > math.log1p(max(tolerance, SAME_AT_MOST))
    return Change.same if -margin <= low and high <= margin and not hides_much else Change.unclear


def unlikeness(before: Record, after: Record) -> tuple[str, ...]:
    """The conditions in which two records differ, so that their speedups can't be compared: `name: before, after`."""
    a, b = conditions(before), conditions(after)
    return tuple(f"{name}: {a[name]}, {b[name]}" for name in a if name in b and a[name] != b[name])


def conditions(record: Record) -> dict[str, str]:
    """What two records must share to be compared."""
    where = record.environment
    gpu = record.device is DeviceKind.CUDA
    held = {
        "problem": record.problem,
        "device": record.device.value,
        "processor": where.get("gpu" if gpu else "cpu"),
        "driver": where.get("driver"),
        "torch": where.get("torch"),
        "workload": record.workload,
        "precision": record.evidence.get("precision_override") or "declared",
        "problem text": record.problem_digest[:12],
    }
    if not gpu:
        del held["driver"]
    return {name: str(value) if value else UNKNOWN for name, value in held.items()}


def estimate_of(record: Record) -> SpeedupEstimate | None:
    """The speedup over eager with its interval; None where the record has none, or did not pass."""
    stated, speedup = _inner(record.timing, "speedup"), record.speedup
    if main_baseline(record) != EAGER:
        stated = _inner(_inner(record.timing, "baselines"), EAGER)
        speedup = _positive(stated.get("speedup"))
    if speedup is None or record.status is not Status.passed:
        return None
    bursts = _bursts(record, "reference"), _bursts(record, "solution")
    if bursts[0] and len(bursts[0]) == len(bursts[1]):
        found = speedup_interval(*bursts)
        if math.isclose(found.speedup, speedup, rel_tol=1e-6):
            return found
    low, high = _positive(stated.get("low")), _positive(stated.get("high"))
    whole = low is not None and high is not None and low <= speedup <= high
    return SpeedupEstimate(
        speedup=speedup,
        low=low if whole else None,
        high=high if whole else None,
        confidence=0.95,
        pairs=len(bursts[0]) or 1,
        method="as recorded",
    )


def solution_s(record: Record) -> float | None:
    """Median device time of a call of the solution, seconds."""
    return _positive(_inner(_inner(record.timing, "solution"), "device").get("median_s"))


def noise_floor(before: Record, after: Record, *, within_run: bool = False) -> float:
    """The difference of logs that is taken for noise between these two."""
    measured = [_positive(_inner(record.timing, "noise_floor").get("log_width")) or 0.0 for record in (before, after)]
    shortest = min((held for record in (before, after) if (held := solution_s(record))), default=None)
    known = WITHIN_RUN if within_run else REPEATABILITY["short" if shortest and shortest < SHORT_S else "long"]
    return max(known, *measured)


def _speed(record: Record) -> SpeedupEstimate | None:
    """Calls a second, from the medians of the bursts; without an interval where they are not recorded."""
    bursts = _bursts(record, "solution")
    if bursts:
        return interval_of_logs([-math.log(float(np.median(burst))) for burst in bursts])
    time_s = solution_s(record)
    if time_s is None:
        return None
    return SpeedupEstimate(speedup=1 / time_s, low=None, high=None, confidence=0.95, pairs=1, method="single pair")


def _bursts(record: Record, side: str) -> list[list[float]]:
    """The raw samples, seconds; empty where they are absent or not all positive times."""
    held = _inner(record.timing, side).get("samples_s")
    if not isinstance(held, Sequence) or isinstance(held, str) or not held:
        return []
    bursts = [list(map(_positive, burst)) if isinstance(burst, Sequence) else [] for burst in held]
    if any(not burst or None in burst for burst in bursts):
        return []
    return [[time_s for time_s in burst if time_s is not None] for burst in bursts]


def _inner(held: Any, key: str) -> Mapping[str, Any]:
    value = held.get(key) if isinstance(held, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _positive(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0.0 else None

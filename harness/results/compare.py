"""Compare two records or two runs: faster, slower, same, or unclear.

Works on records only. Values of outputs are compared elsewhere. For the rules see `compare_records`, `decide` and
`noise_floor`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from harness.core.choices import DeviceKind
from harness.core.problem import digest_text
from harness.core.record import SECRET_SHAPES, Record
from harness.core.stats import SAME_AT_MOST, SpeedupEstimate, interval_of_logs, quotient, same_within, speedup_interval
from harness.core.status import VERDICT_FREE, Status
from harness.results.evidence import mapping, positive, rows, whole
from harness.results.reader import Identity
from harness.results.scoring import DECLARED, is_noisy, noise_floor_of, scored

TOLERANCE = 0.02
"""Default limit for a regression: the share by which a call may take longer than before."""

SHORT_S = 50e-6
REPEATABILITY = {"long": 0.01, "short": 0.03}
"""Spread of a speedup between separate runs that counts as noise, as a difference of logs.

`long` applies to calls of `SHORT_S` and more. The same five solutions in two runs on one H200
(`results/h200-transcripts-cold`, `-warm`) differ by 0.6 % at most, some with intervals that do not overlap.
"""

WITHIN_RUN = 0.005
"""The same for two solutions measured in one run: the interval width at which a measurement stops."""

COMPARISON_FORMAT = 1

UNKNOWN = "unknown"
"""A condition that a record does not state. Two records that both omit it are compared, and the difference says so."""


class Change(StrEnum):
    """Result of comparing one solution's earlier and later record."""

    faster = "faster"
    """The whole interval lies above the noise floor."""
    slower = "slower"
    """The whole interval lies below the noise floor."""
    same = "same"
    """The whole interval lies inside the noise floor or the tolerance, and the floor is narrow enough to say so."""
    unclear = "unclear"
    """None of these, or too noisy to tell: measure longer (`harness eval --timing-budget`)."""
    broken = "broken"
    """Passed before and does not any more."""
    fixed = "fixed"
    """Did not pass before and does now."""
    failing = "failing"
    """Passed neither before nor now."""
    untimed = "untimed"
    """Passed both times, but at least one record has no time, for example because CUDA sources ran on the CPU."""
    unjudged = "unjudged"
    """At least one record has no verdict on the solution (harness_error, not_emulated, unsupported)."""
    unlike = "unlike"
    """Measured under different conditions; not compared."""
    added = "added"
    """Only in the later run."""
    removed = "removed"
    """Only in the earlier run."""


WORDS = {Change.unclear: "can't tell", Change.unlike: "not compared", Change.unjudged: "no verdict"}
"""Texts of the outcomes that are not shown by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionDifference:
    """One solution (or pair of solutions) compared.

    Attributes:
        regressed: Whether it is a regression.
        ratio: How many times faster the later solution is; above 1 means faster. `low`, `high`: its 95 % interval.
        basis: What the ratio compares: `speedup` or `time`.
        floor: The applied noise floor, a difference of logs.
        before_speedup, after_speedup: Speedups over eager.
        before_same_within, after_same_within: Share within which a speedup is 1, if its noise floor says so.
        before_s, after_s: Times per call in seconds.
        unlike: Conditions that differ, as `name: before, after`.
        unknown: Conditions that neither record states.
        reason: The later record's reason.
    """

    problem: str
    solution: str
    later_solution: str
    outcome: Change
    regressed: bool = False
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
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifferences:
    """Two runs compared; if `forced`, also records under different conditions."""

    rows: tuple[SolutionDifference, ...]
    tolerance: float
    forced: bool

    @property
    def regressions(self) -> tuple[SolutionDifference, ...]:
        """Solutions that are slower than the tolerance, or do not pass any more."""
        return tuple(row for row in self.rows if row.regressed)

    @property
    def compared(self) -> int:
        """Number of solutions with a verdict in both runs and comparable conditions."""
        left_out = (Change.unlike, Change.unjudged, Change.added, Change.removed)
        return sum(1 for row in self.rows if row.outcome not in left_out)

    def counts(self) -> dict[Change, int]:
        """Return the number of solutions per occurring outcome, in `Change`'s order."""
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
    """Pair the records of two runs and compare each pair.

    Records are paired by problem, solution, device and workload. If one run has several records of an identity, the
    last counts. A solution that is in each run once, but on another device or workload, is paired and reported as
    unlike.

    Raises:
        ValueError: The tolerance, a share of the earlier time, is not in [0, 1).
    """
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance must be a share of the earlier time, at least 0 and below 1, not {tolerance}")
    old, new = ({record.identity: record for record in records} for records in (before, after))
    pairs: list[tuple[Record | None, Record | None]] = [(old[key], new[key]) for key in old.keys() & new.keys()]
    left, right = ({key: one[key] for key in one.keys() - other.keys()} for one, other in ((old, new), (new, old)))
    elsewhere = _single(right)
    for name, key in _single(left).items():
        if name in elsewhere:
            pairs.append((left.pop(key), right.pop(elsewhere[name])))
    pairs += [(record, None) for record in left.values()] + [(None, record) for record in right.values()]
    rows = [
        compare_records(a, b, tolerance=tolerance, force=force)
        if a is not None and b is not None
        else SolutionDifference(outcome=Change.added if a is None else Change.removed, **_sides(a, b))
        for a, b in pairs
    ]
    return RunDifferences(
        rows=tuple(sorted(rows, key=lambda row: (row.problem, row.solution, row.outcome))),
        tolerance=tolerance,
        forced=force,
    )


def _single(records: Iterable[Identity]) -> dict[tuple[str, str], Identity]:
    """Return the identities by problem and solution, of those that occur once."""
    keys = list(records)
    counted = Counter(key[:2] for key in keys)
    return {key[:2]: key for key in keys if counted[key[:2]] == 1}


def _sides(before: Record | None, after: Record | None) -> dict[str, Any]:
    """Return the values of a difference that come from either record alone."""
    first, last = before or after, after or before
    assert first is not None
    assert last is not None
    values: dict[str, Any] = {"problem": first.problem, "solution": first.solution, "reason": last.reason}
    values["later_solution"] = last.solution
    for name, record in (("before", before), ("after", after)):
        estimate = estimate_of(record) if record else None
        floor = noise_floor_of(record) if record else None
        values[name] = record.status if record else None
        values[f"{name}_s"] = solution_s(record) if record else None
        values[f"{name}_speedup"] = estimate.speedup if estimate else None
        if estimate and floor is not None:
            values[f"{name}_same_within"] = same_within(estimate.speedup, estimate.low, estimate.high, floor=floor)
    return values


def compare_records(
    before: Record, after: Record, *, tolerance: float = TOLERANCE, force: bool = False, within_run: bool = False
) -> SolutionDifference:
    """Compare two records of one solution, or of two solutions in one run.

    The ratio is the quotient of the two speedups over eager. Each was measured in turns with its reference, so clocks
    and temperature of the day cancel. Its interval comes from both intervals, whose half widths (in logs) add in
    squares (`stats.quotient`). This needs equal conditions: device kind, processor, driver, torch, workload, precision
    and problem text. If they differ and `force` is set, the solutions' times are compared, by the medians of their
    bursts. Two records of one run (`within_run`) have a smaller noise floor. `tolerance` is the accepted regression, a
    share of the earlier time.
    """
    unlike = unlikeness(before, after)
    unknown = tuple(name for name, value in conditions(before).items() if value == UNKNOWN and not unlike)
    shared = {**_sides(before, after), "unlike": unlike, "unknown": unknown}
    passed = (before.status is Status.passed, after.status is Status.passed)
    outcome, ratio = Change.untimed, None
    if unlike and not force:
        outcome = Change.unlike
    elif before.status in VERDICT_FREE or after.status in VERDICT_FREE:
        outcome = Change.unjudged
    elif not all(passed):
        outcome = Change.broken if passed[0] else Change.fixed if passed[1] else Change.failing
    else:
        old, new = ((_speed if unlike else estimate_of)(record) for record in (before, after))
        ratio = quotient(new, old) if old and new else None
    if ratio is None:
        return SolutionDifference(outcome=outcome, regressed=outcome is Change.broken, **shared)
    floor = noise_floor(before, after, within_run=within_run)
    outcome = decide(ratio, floor=floor, tolerance=tolerance)
    return SolutionDifference(
        outcome=outcome,
        regressed=outcome is Change.slower and ratio.speedup < 1.0 / (1.0 + tolerance),
        ratio=ratio.speedup,
        low=ratio.low,
        high=ratio.high,
        basis="time" if unlike else "speedup",
        floor=floor,
        **shared,
    )


def decide(ratio: SpeedupEstimate, *, floor: float, tolerance: float) -> Change:
    """Apply the noise floor (a difference of logs) and the tolerance to a ratio.

    A repeated measurement of another day deviates by more than its interval says. So a difference needs an interval
    beyond the noise floor. "Same" needs the whole interval inside the floor or the tolerance, whichever is wider; but a
    floor wider than the tolerance and `stats.SAME_AT_MOST` proves nothing. A ratio that is too noisy to tell
    (`scoring.is_noisy`) decides nothing either. Everything else is unclear.
    """
    if ratio.low is None or ratio.high is None or is_noisy(ratio.low, ratio.high):
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
    """Return the conditions in which two records differ, as `name: before, after`."""
    a, b = conditions(before), conditions(after)
    return tuple(f"{name}: {a[name]}, {b[name]}" for name in a if name in b and a[name] != b[name])


def conditions(record: Record) -> dict[str, str]:
    """Return the conditions that two records must share to be compared."""
    gpu, where = record.device is DeviceKind.CUDA, record.environment
    values = {
        "problem": record.problem,
        "device": record.device.value,
        "processor": where.get("gpu" if gpu else "cpu"),
        **({"driver": where.get("driver")} if gpu else {}),
        "torch": where.get("torch"),
        "workload": record.workload,
        "precision": record.evidence.get("precision_override") or DECLARED,
        "problem text": record.problem_digest[:12],
        "secret shapes": whole(record.evidence, SECRET_SHAPES) or "none",
        "secret sizes": _secret_sizes(record),
    }
    return {name: str(value or UNKNOWN) for name, value in values.items()}


def _secret_sizes(record: Record) -> str:
    """Return a digest of the secret sizes; `none` if none were judged."""
    sizes = [json.dumps(mapping(row, "sizes"), sort_keys=True) for row in rows(record.evidence, "shapes", "verdicts")]
    return digest_text(*sizes)[:12] if sizes else "none"


def estimate_of(record: Record) -> SpeedupEstimate | None:
    """Return a record's speedup over eager with its interval; None without one.

    The interval is computed from the raw samples if they give the recorded speedup, else it is the recorded one.
    """
    entry = scored(record)
    if entry.speedup is None:
        return None
    bursts = _bursts(record, "reference"), _bursts(record, "solution")
    if bursts[0] and len(bursts[0]) == len(bursts[1]):
        estimate = speedup_interval(*bursts)
        if math.isclose(estimate.speedup, entry.speedup, rel_tol=1e-6):
            return estimate
    whole = entry.low is not None and entry.high is not None and entry.low <= entry.speedup <= entry.high
    return SpeedupEstimate(
        speedup=entry.speedup,
        low=entry.low if whole else None,
        high=entry.high if whole else None,
        confidence=0.95,
        pairs=len(bursts[0]) or 1,
        method="as recorded",
    )


def solution_s(record: Record) -> float | None:
    """Return the median device time of one call of the solution, in seconds."""
    return positive(mapping(record.timing, "solution", "device").get("median_s"))


def noise_floor(before: Record, after: Record, *, within_run: bool = False) -> float:
    """Return the largest of both noise floors and the known one (log difference)."""
    shortest_s = min(filter(None, map(solution_s, (before, after))), default=SHORT_S)
    known = WITHIN_RUN if within_run else REPEATABILITY["short" if shortest_s < SHORT_S else "long"]
    return max(known, noise_floor_of(before) or 0.0, noise_floor_of(after) or 0.0)


def _speed(record: Record) -> SpeedupEstimate | None:
    """Return calls per second by the medians of the bursts; without, no interval."""
    if bursts := _bursts(record, "solution"):
        return interval_of_logs([-math.log(float(np.median(burst))) for burst in bursts])
    time_s = solution_s(record)
    if time_s is None:
        return None
    return SpeedupEstimate(speedup=1 / time_s, low=None, high=None, confidence=0.95, pairs=1, method="single pair")


def _bursts(record: Record, side: str) -> list[list[float]]:
    """Return the raw samples in seconds; empty if absent or not all positive."""
    samples = mapping(record.timing, side).get("samples_s")
    if not isinstance(samples, list | tuple):
        return []
    bursts = [[positive(value) or 0.0 for value in (burst if isinstance(burst, list) else ())] for burst in samples]
    return bursts if all(burst and all(burst) for burst in bursts) else []

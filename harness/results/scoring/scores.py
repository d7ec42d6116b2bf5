"""Scores from records: comparable groups, fast_p, geometric means, pass@k.

**Groups.** Only results with equal device kind, processor (GPU model; on the host its CPU), GPU driver, workload,
baseline and precision are compared. Precision is what each problem declares, or the one class that the run requested. A
problem whose file changed between records (`problem_digest`) counts as another problem.

**Counts.** A status without a verdict on the solution (`VERDICT_FREE`) is in no denominator; its number is shown. A
disqualified solution is a failure, listed without a rank. A pass without a time (CUDA sources on the host) counts for
fast_0, which is correctness, and for no other p. Of several records of one solution on one machine the latest counts.

**Formulas.** fast_p is the share of problems solved with a speedup strictly above p; a speedup inside its measured
noise floor counts as 1. The mean speedup is the geometric mean over correct solutions (A. Ouyang et al., "KernelBench:
Can LLMs Write Efficient GPU Kernels?", 2025, arXiv:2502.10517). pass@k is the unbiased estimator 1 - C(n-c, k) / C(n,
k) of M. Chen et al., "Evaluating Large Language Models Trained on Code", 2021, arXiv:2107.03374, section 2.1.

**Record keys.** For the baseline in `timing.baseline` (default eager): the record's `speedup`, with its interval in
`timing.speedup.low` and `.high` (or `timing.speedup_interval`). For others: `timing.baselines.<name>` with `speedup`,
`low`, `high`. Fraction of the speed of light: `timing.speed_of_light.fraction`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.stats import may_be_one, same_within
from harness.core.status import VERDICT_FREE, Status
from harness.results.latest import recency

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The p of fast_p, as in KernelBench."""

EAGER = "eager"

DECLARED = "declared"
"""Precision of a run that uses each problem's own class; `evidence.precision_override` names another."""


def fast_p(speedups: Sequence[float | None], p: float) -> float | None:
    """Return the share of results with a speedup strictly above `p`.

    Args:
        speedups: One speedup per result; None for an incorrect result.
        p: The threshold.

    Returns:
        The share; None without results. Source: KernelBench, arXiv:2502.10517.
    """
    if not speedups:
        return None
    return sum(1 for value in speedups if value is not None and value > p) / len(speedups)


def geometric_mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean.

    Args:
        values: Positive finite numbers.

    Returns:
        The mean; None without values.

    Raises:
        ValueError: A value is not positive and finite.
    """
    logs = []
    for value in values:
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"a geometric mean needs positive finite numbers, not {value}")
        logs.append(math.log(value))
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def pass_at_k(samples: int, correct: int, k: int) -> float | None:
    """Return the chance that at least one of `k` drawn samples is correct.

    The estimator is 1 - C(n-c, k) / C(n, k) (arXiv:2107.03374, section 2.1).

    Args:
        samples: Number n of samples.
        correct: Number c of correct samples.
        k: Number of draws without replacement.

    Returns:
        The chance; None if there are fewer than `k` samples.

    Raises:
        ValueError: The numbers contradict each other, or `k` is below 1.
    """
    if not (0 <= correct <= samples and k >= 1):
        raise ValueError(f"impossible: {correct} correct of {samples} samples, k = {k}")
    if samples < k:
        return None
    missed = 1.0
    for size in range(samples - correct + 1, samples + 1):
        missed *= max(0.0, 1.0 - k / size)
    return 1.0 - missed


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LikeGroup:
    """Conditions that results must share to be compared.

    Attributes:
        device: Device kind.
        processor: Model of the GPU or CPU; `unknown` if the record names none.
        workload: Workload.
        baseline: Baseline of the speedups.
        precision: `declared` if each problem uses its own class, else the class that the run requested.
        driver: GPU driver; empty on the host device.
    """

    device: str
    processor: str
    workload: str
    baseline: str
    precision: str = DECLARED
    driver: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRecord:
    """The parts of a record that scores use.

    Attributes:
        group: Conditions of the record.
        problem: The problem's id.
        problem_digest: Digest of the problem's file.
        author: The author.
        solution: The solution.
        sample: Sample number.
        status: The record's status.
        reason: The record's reason.
        speedup: Speedup; None if it did not pass or was not timed.
        low: Lower end of the speedup's interval.
        high: Upper end of the speedup's interval.
        sol_fraction: Reached fraction of the speed of light.
        labels: The record's labels.
        floor: Noise floor of its session, a difference of logs; 0 if none was measured.
    """

    group: LikeGroup
    problem: str
    problem_digest: str
    author: str
    solution: str
    sample: int | None
    status: Status
    reason: str
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    sol_fraction: float | None = None
    labels: tuple[str, ...] = ()
    floor: float = 0.0

    @property
    def same_within(self) -> float | None:
        """Share within which the speedup is 1; None if it is not, or no floor is known."""
        if self.speedup is None or self.floor == 0.0:
            return None
        return same_within(self.speedup, self.low, self.high, floor=self.floor)

    @property
    def counted(self) -> float | None:
        """The speedup that fast_p counts: 1 if it is inside its noise floor.

        If the floor or the interval is too wide to decide, it is at most 1.
        """
        if self.speedup is None or self.floor == 0.0:
            return self.speedup
        if self.same_within is not None:
            return 1.0
        unsure = may_be_one(self.speedup, self.low, self.high, floor=self.floor)
        return min(1.0, self.speedup) if unsure else self.speedup

    @property
    def passed(self) -> bool:
        return self.status is Status.passed

    @property
    def judged(self) -> bool:
        return self.status not in VERDICT_FREE


def entries_of(records: Iterable[Record], *, baseline: str = EAGER) -> tuple[ScoredRecord, ...]:
    """Convert records to entries.

    Of several records of one solution in one group, only the latest is kept. A passed record without a speedup over
    `baseline` becomes an untimed pass.

    Args:
        records: Records of any runs.
        baseline: Baseline of the speedups.

    Returns:
        The entries, in the order of the records.
    """
    latest: dict[tuple[object, ...], tuple[datetime, int, ScoredRecord]] = {}
    for place, record in enumerate(records):
        entry = _entry(record, baseline)
        key = (entry.group, entry.problem, entry.author, entry.solution, entry.sample)
        stamp = (recency(record), place)
        if key not in latest or latest[key][:2] <= stamp:
            latest[key] = (*stamp, entry)
    return tuple(entry for _, _, entry in latest.values())


def _entry(record: Record, baseline: str) -> ScoredRecord:
    speedup, low, high = _speedup(record, baseline)
    gpu = record.device is DeviceKind.CUDA
    processor = record.environment.get("gpu" if gpu else "cpu")
    driver = record.environment.get("driver") if gpu else None
    return ScoredRecord(
        group=LikeGroup(
            device=record.device.value,
            processor=str(processor) if processor else "unknown",
            workload=record.workload,
            baseline=baseline,
            precision=str(record.evidence.get("precision_override") or DECLARED)[:20],
            driver=str(driver)[:40] if driver else "",
        ),
        problem=record.problem,
        problem_digest=record.problem_digest,
        author=record.author,
        solution=record.solution,
        sample=record.sample,
        status=record.status,
        reason=record.reason,
        speedup=speedup,
        low=low,
        high=high,
        sol_fraction=_number(_inner(record.timing, "speed_of_light"), "fraction"),
        labels=record.labels,
        floor=_number(_inner(record.timing, "noise_floor"), "log_width") or 0.0,
    )


def _speedup(record: Record, baseline: str) -> tuple[float | None, float | None, float | None]:
    """Return the speedup over the baseline with its interval, of a passed record."""
    if record.status is not Status.passed:
        return None, None, None
    if baseline != main_baseline(record):
        held = _inner(_inner(record.timing, "baselines"), baseline)
        speedup = _number(held, "speedup")
        return (None, None, None) if speedup is None else (speedup, _number(held, "low"), _number(held, "high"))
    if record.speedup is None:
        return None, None, None
    held = _inner(record.timing, "speedup")
    low, high = _number(held, "low"), _number(held, "high")
    pair = (record.timing or {}).get("speedup_interval")
    if low is None and isinstance(pair, list | tuple) and len(pair) == 2:
        low, high = (_number({"end": end}, "end") for end in pair)
    return record.speedup, low, high


def main_baseline(record: Record) -> str:
    """Return the baseline of the record's own speedup."""
    named = (record.timing or {}).get("baseline")
    return named if isinstance(named, str) else EAGER


def baselines_of(record: Record) -> tuple[str, ...]:
    """Return the baselines other than eager that the record has a speedup over."""
    held = _inner(record.timing, "baselines") or {}
    main = [main_baseline(record)] if record.speedup is not None else []
    others = [name for name in held if _number(_inner(held, name), "speedup") is not None]
    return tuple(name for name in (*main, *others) if name != EAGER)


def _inner(held: Any, key: str) -> Mapping[str, Any] | None:
    value = held.get(key) if isinstance(held, Mapping) else None
    return value if isinstance(value, Mapping) else None


def _number(held: Mapping[str, Any] | None, key: str) -> float | None:
    """Return a positive finite number.

    None for anything else (another harness may write it).
    """
    value = held.get(key) if held is not None else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0.0 else None


class Selection(StrEnum):
    """Which samples of one author for one problem are scored."""

    best = "best"
    """The fastest pass, else an untimed pass, else the first failure."""
    all = "all"
    """Every sample counts as a separate result."""


def select(entries: Iterable[ScoredRecord], selection: Selection) -> tuple[ScoredRecord, ...]:
    """Select the entries to score.

    Args:
        entries: Entries of any groups.
        selection: `best` for one entry per group, author and problem; `all` for every entry.

    Returns:
        The selected entries.

    Raises:
        ValueError: `selection` is unknown.
    """
    held = tuple(entries)
    if Selection(selection) is Selection.all:
        return held
    best: dict[tuple[object, ...], ScoredRecord] = {}
    for entry in held:
        key = (entry.group, entry.author, entry.problem, entry.problem_digest)
        if key not in best or merit(entry) > merit(best[key]):
            best[key] = entry
    return tuple(best.values())


def merit(entry: ScoredRecord) -> tuple[int, float]:
    """Return a sort key: without a verdict, failed, passed, then by speedup."""
    return (3 if entry.speedup is not None else 2 if entry.passed else 1 if entry.judged else 0, entry.speedup or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Figures over the entries of one group. Shares are None if nothing counts.

    Attributes:
        results: Number of results with a verdict.
        passed: Number of passes.
        untimed: Number of passes without a time.
        disqualified: Number of disqualified results.
        unjudged: Number of results without a verdict, not among `results`.
        fast_p: Share of results with a speedup above p, by p.
        geomean: Geometric mean of the speedups.
        low: Lower end of the mean's interval; None unless every speedup has an interval.
        high: Upper end of the mean's interval.
        floor: Noise floor of the mean, a difference of logs: the mean of all floors, whose errors may have one sign.
        sol_fraction: Geometric mean of the fractions of the speed of light.
        pass_at_k: pass@k, by k.
    """

    results: int
    passed: int
    untimed: int
    disqualified: int
    unjudged: int
    fast_p: Mapping[float, float | None]
    geomean: float | None
    low: float | None
    high: float | None
    floor: float
    sol_fraction: float | None
    pass_at_k: Mapping[int, float | None]

    @property
    def same_within(self) -> float | None:
        """Share within which the mean is 1; None if it is not, or no floor is known."""
        if self.geomean is None or self.floor == 0.0:
            return None
        return same_within(self.geomean, self.low, self.high, floor=self.floor)


def score(
    entries: Sequence[ScoredRecord],
    *,
    selection: Selection = Selection.best,
    problems: Sequence[str] = (),
    thresholds: Sequence[float] = THRESHOLDS,
    ks: Sequence[int] = (1,),
) -> Score:
    """Score the entries of one author in one group.

    pass@k is the mean over problems with at least k samples with a verdict, whatever `selection` says.

    Args:
        entries: Entries of one group.
        selection: Samples that count per problem.
        problems: Problems that should have been attempted. One without a record counts as a failure, as in KernelBench,
            whose denominator is the level's size.
        thresholds: The p of fast_p.
        ks: The k of pass@k.

    Returns:
        The figures.

    Raises:
        ValueError: The entries are of several groups.
    """
    if len({entry.group for entry in entries}) > 1:
        raise ValueError("results of different devices, workloads, baselines or precisions can't be scored together")
    chosen = [entry for entry in select(entries, selection) if entry.judged]
    timed = [entry for entry in chosen if entry.speedup is not None]
    untimed = sum(1 for entry in chosen if entry.passed and entry.speedup is None)
    seen = {entry.problem for entry in entries}
    missing = sum(1 for problem in problems if problem not in seen)
    mean, low, high = _mean_with_interval(timed)
    return Score(
        results=len(chosen) + missing,
        passed=sum(1 for entry in chosen if entry.passed),
        untimed=untimed,
        disqualified=sum(1 for entry in chosen if entry.status is Status.disqualified),
        unjudged=sum(1 for entry in entries if not entry.judged),
        fast_p=shares(chosen, thresholds, missing=missing),
        geomean=mean,
        low=low,
        high=high,
        floor=math.fsum(entry.floor for entry in timed) / len(timed) if timed else 0.0,
        sol_fraction=geometric_mean(e.sol_fraction for e in timed if e.sol_fraction is not None),
        pass_at_k={k: _mean_pass_at_k(entries, k) for k in ks},
    )


def shares(
    judged: Sequence[ScoredRecord], thresholds: Sequence[float] = THRESHOLDS, *, missing: int = 0
) -> dict[float, float | None]:
    """Return fast_p of evaluated entries and `missing` failures.

    If there are passes and none is timed, fast_p is None except for p = 0.
    """
    failures: list[float | None] = [None] * (missing + sum(1 for entry in judged if not entry.passed))
    timed = [entry.counted for entry in judged if entry.counted is not None]
    untimed = sum(1 for entry in judged if entry.passed) - len(timed)
    passes: list[float | None] = [1.0] * (len(timed) + untimed)
    return {
        p: fast_p(passes + failures, p)
        if p == 0.0
        else fast_p([*timed, *failures], p)
        if timed or not untimed
        else None
        for p in thresholds
    }


def _mean_with_interval(timed: Sequence[ScoredRecord]) -> tuple[float | None, float | None, float | None]:
    """Return the geometric mean with its interval.

    Half widths of independent logs add in squares; the mean's is the root of their sum over their number.
    """
    mean = geometric_mean(entry.speedup for entry in timed if entry.speedup is not None)
    if mean is None or any(entry.low is None or entry.high is None for entry in timed):
        return mean, None, None
    down = math.sqrt(math.fsum(math.log((e.speedup or 1) / (e.low or 1)) ** 2 for e in timed)) / len(timed)
    up = math.sqrt(math.fsum(math.log((e.high or 1) / (e.speedup or 1)) ** 2 for e in timed)) / len(timed)
    return mean, mean * math.exp(-down), mean * math.exp(up)


def _mean_pass_at_k(entries: Sequence[ScoredRecord], k: int) -> float | None:
    samples: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for entry in entries:
        if entry.judged:
            samples[entry.problem, entry.problem_digest].append(entry.passed)
    found = [pass_at_k(len(held), sum(held), k) for held in samples.values()]
    known = [value for value in found if value is not None]
    return math.fsum(known) / len(known) if known else None

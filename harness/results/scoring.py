"""Scores from records: comparable groups, fast_p, geometric means, pass@k.

**Groups.** Only results with equal device kind, processor (GPU model; on the host its CPU), GPU driver, workload,
baseline, precision and number of secret shapes are compared. Precision is what each problem declares, or the one class
that the run requested. With secret shapes, a speedup is the geometric mean over them. A problem whose file changed
between records (`problem_digest`) counts as another problem.

**Counts.** A status without a verdict on the solution (`VERDICT_FREE`) is in no denominator; its number is shown. A
disqualified solution is a failure, listed without a rank. A pass without a time (CUDA sources on the host) counts for
fast_0, which is correctness, and for no other p. Of several records of one solution on one machine the latest counts.

**Formulas.** fast_p is the share of problems solved with a speedup strictly above p; a speedup inside its measured
noise floor counts as 1. The mean speedup is the geometric mean over correct solutions (A. Ouyang et al., "KernelBench:
Can LLMs Write Efficient GPU Kernels?", 2025, arXiv:2502.10517). pass@k is the unbiased estimator 1 - C(n-c, k) / C(n,
k) of M. Chen et al., "Evaluating Large Language Models Trained on Code", 2021, arXiv:2107.03374, section 2.1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.record import SECRET_SHAPES, Record
from harness.core.stats import may_be_one, same_within
from harness.core.status import VERDICT_FREE, Status
from harness.results.evidence import mapping, positive, whole
from harness.results.latest import recency

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The p of fast_p, as in KernelBench."""

NOISY_FACTOR = 1.5
"""A speedup is too noisy to tell if the ends of its 95 % interval are further apart than this factor."""
EAGER = "eager"

DECLARED = "declared"
"""Precision of a run that uses each problem's own class; `evidence.precision_override` names another."""


def fast_p(speedups: Sequence[float | None], p: float) -> float | None:
    """Return the share of results with a speedup strictly above `p`.

    None without results. An incorrect result has the speedup None.
    """
    if not speedups:
        return None
    return sum(1 for value in speedups if value is not None and value > p) / len(speedups)


def geometric_mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean; None without values.

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
    """Return the chance that one of `k` samples is correct, drawn without replacement.

    The estimator is 1 - C(n-c, k) / C(n, k) (arXiv:2107.03374, section 2.1). None if there are fewer than `k` samples.

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

    `processor` is `unknown` if the record names none. `precision` is `declared` if each problem uses its own class,
    else the class that the run requested. `driver` is empty on the host device. `secret_shapes` is their number, 0 if
    the shown shape alone counts.
    """

    device: str
    processor: str
    workload: str
    baseline: str
    precision: str = DECLARED
    driver: str = ""
    secret_shapes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How fast one solution is, or several on average.

    Attributes:
        speedup: Speedup; None if nothing passed or nothing was timed.
        low: Lower end of the speedup's 95 % interval.
        high: Upper end of the interval.
        floor: Noise floor, a difference of logs; 0 if none was measured.
        sol_fraction: Reached fraction of the speed of light.
        backward_s: Device time of the backward in seconds, if the problem asks for one and it was timed.
        reference_backward_s: The same of the reference.
        held_bytes: Device memory that one forward took and still held as its backward began.
        reference_held_bytes: The same of the reference.
        gap: Specialisation gap: the speedup at the shown sizes over that at secret ones; None without secret shapes.
    """

    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    floor: float = 0.0
    sol_fraction: float | None = None
    backward_s: float | None = None
    reference_backward_s: float | None = None
    held_bytes: int | None = None
    reference_held_bytes: int | None = None
    gap: float | None = None

    @property
    def same_within(self) -> float | None:
        """Share within which the speedup is 1; None if it is not, or no floor is known."""
        if self.speedup is None or self.floor == 0.0:
            return None
        return same_within(self.speedup, self.low, self.high, floor=self.floor)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRecord(Figures):
    """The parts of a record that scores use, with its speedup over one baseline."""

    group: LikeGroup
    problem: str
    problem_digest: str
    author: str
    solution: str
    sample: int | None
    status: Status
    reason: str
    labels: tuple[str, ...] = ()
    kernelbench_rules: bool | None = None
    """Whether the outputs on the problem's own inputs are right; None if unknown."""
    too_noisy: bool = False
    """Whether it was timed, and `entries_of` left the speedup out because its interval is too wide."""

    @property
    def counted(self) -> float | None:
        """The speedup that fast_p counts: 1 if it is inside its noise floor.

        If the floor or the interval is too wide to decide, it is at most 1. None if it is too noisy to tell.
        """
        if is_noisy(self.low, self.high):
            return None
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
    """Convert records to entries, in their order.

    Of several records of one solution in one group, only the latest is kept. A passed record without a speedup over
    `baseline` becomes an untimed pass, and so does one whose speedup is too noisy (`NOISY_FACTOR`).
    """
    latest: dict[tuple[object, ...], tuple[datetime, ScoredRecord]] = {}
    for record in records:
        entry, when = _without_noise(scored(record, baseline)), recency(record)
        key = (entry.group, entry.problem, entry.author, entry.solution, entry.sample)
        if key not in latest or latest[key][0] <= when:
            latest[key] = (when, entry)
    return tuple(entry for _, entry in latest.values())


def is_noisy(low: float | None, high: float | None) -> bool:
    """Return whether a 95 % interval is too wide for its speedup to be ranked."""
    return low is not None and high is not None and high > NOISY_FACTOR * low


def _without_noise(entry: ScoredRecord) -> ScoredRecord:
    if not is_noisy(entry.low, entry.high):
        return entry
    return replace(entry, speedup=None, low=None, high=None, sol_fraction=None, gap=None, too_noisy=True)


def scored(record: Record, baseline: str = EAGER) -> ScoredRecord:
    """Convert one record to an entry."""
    speedup, low, high = _speedup(record, baseline)
    gpu = record.device is DeviceKind.CUDA
    driver = record.environment.get("driver") if gpu else None
    return ScoredRecord(
        group=LikeGroup(
            device=record.device.value,
            processor=str(record.environment.get("gpu" if gpu else "cpu") or "unknown"),
            workload=record.workload,
            baseline=baseline,
            precision=str(record.evidence.get("precision_override") or DECLARED)[:40],
            driver=str(driver or "")[:40],
            secret_shapes=whole(record.evidence, SECRET_SHAPES) or 0,
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
        sol_fraction=positive(mapping(record.timing, "speed_of_light").get("fraction")),
        gap=None if speedup is None else positive(mapping(record.timing, "shapes", "gap").get("speedup")),
        labels=record.labels,
        kernelbench_rules=_kernelbench_rules(record),
        floor=noise_floor_of(record) or 0.0,
        **_of_backward(record),
    )


def _of_backward(record: Record) -> dict[str, Any]:
    if record.status is not Status.passed:
        return {}
    backward, sides = mapping(record.evidence, "backward"), {"": "solution", "reference_": "reference"}
    return {
        f"{prefix}backward_s": positive(mapping(backward, "backward_s").get(side)) for prefix, side in sides.items()
    } | {f"{prefix}held_bytes": whole(backward, "held_bytes", side) for prefix, side in sides.items()}


def _kernelbench_rules(record: Record) -> bool | None:
    would_pass = record.evidence.get("kernelbench_rules_would_pass")
    return True if record.status is Status.passed else would_pass if isinstance(would_pass, bool) else None


def by_group(records: Iterable[Record], baseline: str = EAGER) -> dict[LikeGroup, list[Record]]:
    """Group comparable records, in the order of the leaderboard."""
    groups: dict[LikeGroup, list[Record]] = defaultdict(list)
    for record in records:
        groups[scored(record, baseline).group].append(record)
    return dict(sorted(groups.items()))


def noise_floor_of(record: Record) -> float | None:
    """Return the measured noise floor of a record, a difference of logs."""
    return positive(mapping(record.timing, "noise_floor").get("log_width"))


def _speedup(record: Record, baseline: str) -> tuple[float | None, float | None, float | None]:
    """Return the speedup over the baseline with its interval, of a passed record."""
    if record.status is not Status.passed:
        return None, None, None
    if baseline != main_baseline(record):
        held = mapping(record.timing, "baselines", baseline)
        speedup = positive(held.get("speedup"))
    else:
        held, speedup = mapping(record.timing, "speedup"), record.speedup
    if speedup is None:
        return None, None, None
    low, high = positive(held.get("low")), positive(held.get("high"))
    pair = (record.timing or {}).get("speedup_interval") if baseline == main_baseline(record) else None
    if low is None and isinstance(pair, list | tuple) and len(pair) == 2:
        low, high = map(positive, pair)
    return speedup, low, high


def main_baseline(record: Record) -> str:
    """Return the baseline of the record's own speedup."""
    named = (record.timing or {}).get("baseline")
    return named if isinstance(named, str) else EAGER


def baselines_of(record: Record) -> tuple[str, ...]:
    """Return the baselines other than eager that the record has a speedup over."""
    main = [main_baseline(record)] if record.speedup is not None else []
    held = mapping(record.timing, "baselines")
    others = [name for name in held if positive(mapping(held, name).get("speedup")) is not None]
    return tuple(name for name in (*main, *others) if name != EAGER)


class Selection(StrEnum):
    """Which samples of one author for one problem are scored."""

    best = "best"
    """The fastest pass, else an untimed pass, else the first failure."""
    all = "all"
    """Every sample counts as a separate result."""


def select(entries: Iterable[ScoredRecord], selection: Selection) -> tuple[ScoredRecord, ...]:
    """Select the entries to score: one per group, author and problem, or all of them.

    Raises:
        ValueError: `selection` is unknown.
    """
    if Selection(selection) is Selection.all:
        return tuple(entries)
    best: dict[tuple[object, ...], ScoredRecord] = {}
    for entry in entries:
        key = (entry.group, entry.author, entry.problem, entry.problem_digest)
        if key not in best or merit(entry) > merit(best[key]):
            best[key] = entry
    return tuple(best.values())


def merit(entry: ScoredRecord) -> tuple[int, float]:
    """Return a sort key: without a verdict, failed, passed, then by speedup."""
    return (3 if entry.speedup is not None else 2 if entry.passed else 1 if entry.judged else 0, entry.speedup or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally(Figures):
    """Counts and figures over several entries. Shares are None if nothing counts.

    `speedup` is the geometric mean of the speedups, and has an interval if every speedup has one. `floor` is the mean
    of all floors, whose errors may have one sign. `sol_fraction` and `gap` are geometric means, too.

    Attributes:
        results: Number of results with a verdict.
        passed: Number of passes.
        untimed: Number of passes without a speedup.
        too_noisy: Those of them whose speedup is too noisy to tell.
        disqualified: Number of disqualified results.
        unjudged: Number of results without a verdict, not among `results`.
        fast_p: Share of results with a speedup above p, by p.
    """

    results: int = 0
    passed: int = 0
    untimed: int = 0
    too_noisy: int = 0
    disqualified: int = 0
    unjudged: int = 0
    fast_p: Mapping[float, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Tally):
    """A tally of one author in one group, with pass@k by k."""

    pass_at_k: Mapping[int, float | None]

    @property
    def geomean(self) -> float | None:
        """Geometric mean of the speedups."""
        return self.speedup


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

    Raises:
        ValueError: The entries are of several groups.
    """
    if len({entry.group for entry in entries}) > 1:
        raise ValueError(
            "results of different devices, workloads, baselines, precisions or shapes can't be scored together"
        )
    chosen = [entry for entry in select(entries, selection) if entry.judged]
    timed = [entry for entry in chosen if entry.speedup is not None]
    attempted = {entry.problem for entry in entries}
    missing = sum(problem not in attempted for problem in problems)
    mean, low, high = _mean_with_interval(timed)
    return Score(
        **counts(chosen, thresholds, missing=missing, unjudged=sum(not entry.judged for entry in entries)),
        speedup=mean,
        low=low,
        high=high,
        floor=math.fsum(entry.floor for entry in timed) / len(timed) if timed else 0.0,
        sol_fraction=geometric_mean(e.sol_fraction for e in timed if e.sol_fraction is not None),
        gap=geometric_mean(e.gap for e in timed if e.gap is not None),
        pass_at_k={k: _mean_pass_at_k(entries, k) for k in ks},
    )


def counts(
    judged: Sequence[ScoredRecord],
    thresholds: Sequence[float] = THRESHOLDS,
    *,
    missing: int = 0,
    unjudged: int = 0,
) -> dict[str, Any]:
    """Return the counts of a `Tally` over evaluated entries and `missing` failures.

    If there are passes and none is timed, fast_p is None except for p = 0.
    """
    timed = [entry.counted for entry in judged if entry.counted is not None]
    passed = sum(entry.passed for entry in judged)
    results, untimed = len(judged) + missing, passed - len(timed)
    fast = {p: fast_p([*timed, *[None] * (results - passed)], p) if timed or not untimed else None for p in thresholds}
    if 0.0 in fast:
        fast[0.0] = passed / results if results else None
    return {
        "results": results,
        "passed": passed,
        "untimed": untimed,
        "too_noisy": sum(entry.too_noisy for entry in judged),
        "disqualified": sum(entry.status is Status.disqualified for entry in judged),
        "unjudged": unjudged,
        "fast_p": fast,
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
    values = [pass_at_k(len(passes), sum(passes), k) for passes in samples.values()]
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None

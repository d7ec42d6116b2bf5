"""KernelBench's metrics: fast_p, geometric mean over correct samples, pass@k.

The formulas are in `harness.results.scoring`, with their sources. Two differences from the public scripts avoid
their errors: a sample that is incorrect or untimed can't turn a mean into NaN, and times are paired by problem number
instead of by position in two files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.results.evidence import positive
from harness.results.kernelbench.formats import KernelBenchBaseline, KernelBenchSample
from harness.results.scoring import THRESHOLDS, fast_p, geometric_mean, pass_at_k


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """KernelBench's metrics over `problems`, the denominator of every share.

    `geomean` is the geometric mean of the speedups of correct, timed samples. A share of `fast_p` is None if unknown.
    """

    problems: int
    compiled: int
    correct: int
    geomean: float | None
    fast_p: Mapping[float, float | None]

    def to_json(self) -> dict[str, Any]:
        """Return the metrics as JSON, with thresholds as text, as KernelBench does."""
        return {
            "problems": self.problems,
            "compiled": self.compiled,
            "correct": self.correct,
            "geometric_mean_speedup": self.geomean,
            "fast_p": {str(p): share for p, share in self.fast_p.items()},
        }


def metrics(
    correct: Sequence[bool | int],
    baseline: Sequence[float | None],
    actual: Sequence[float | None],
    *,
    compiled: int | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
) -> Metrics:
    """Compute the metrics over problems in one common order.

    An absent time (None, -1, NaN) leaves a correct sample without a speedup: it counts for fast_0 (correctness) only.
    If no correct sample has a speedup, the other fast_p are None.

    Args:
        correct: Whether each sample is correct.
        baseline: The baseline's time of each problem.
        actual: The sample's time of each problem, in the same unit.
        compiled: Number of samples that compiled; None: that of correct ones.
        thresholds: The p of fast_p.

    Raises:
        ValueError: The lengths differ.
    """
    ratios: list[float | None] = []
    for right, theirs, own in zip(correct, baseline, actual, strict=True):
        base, mine = positive(theirs), positive(own)
        ratios.append(base / mine if right and base is not None and mine is not None else None)
    solved: list[float | None] = [1.0 if right else None for right in correct]
    timed = not any(correct) or any(ratio is not None for ratio in ratios)
    return Metrics(
        problems=len(ratios),
        compiled=sum(map(bool, correct)) if compiled is None else compiled,
        correct=sum(map(bool, correct)),
        geomean=geometric_mean(ratio for ratio in ratios if ratio is not None),
        fast_p={p: fast_p(solved if p == 0.0 else ratios, p) if timed or p == 0.0 else None for p in thresholds},
    )


def metrics_of(
    samples: Iterable[KernelBenchSample], baselines: Mapping[int, KernelBenchBaseline], *, sample: int = 0
) -> Metrics:
    """Compute the metrics of the samples with one number; KernelBench uses 0.

    The problems are those of the baseline and those with samples. Without a baseline, the time of the reference in a
    sample's own evaluation counts. A problem without that sample counts as a failure, as
    in KernelBench. A problem whose sample is null does not count.
    """
    own = {item.problem: item for item in samples if item.sample == sample}
    numbers = sorted(number for number in own.keys() | baselines.keys() if number not in own or not own[number].absent)
    chosen = [own.get(number) or KernelBenchSample(problem=number, sample=sample, absent=True) for number in numbers]
    return metrics(
        [item.correct for item in chosen],
        [_reference_ms(item, baselines) for item in chosen],
        [item.runtime_ms for item in chosen],
        compiled=sum(item.compiled for item in chosen),
    )


def _reference_ms(item: KernelBenchSample, baselines: Mapping[int, KernelBenchBaseline]) -> float | None:
    if not baselines:
        return item.reference_ms
    return baselines[item.problem].mean_ms if item.problem in baselines else None


def pass_at_k_document(samples: Iterable[KernelBenchSample], ks: Sequence[int] = (1,)) -> dict[str, Any]:
    """Return the content of `pass_at_k_results.json` for samples of one level.

    As in KernelBench, a problem with n < k samples is listed with its pass@n, and counts as 0 in the average for k.

    Raises:
        ValueError: A k is below 1.
    """
    if any(k < 1 for k in ks):
        raise ValueError(f"k must be at least 1, not {min(ks)}")
    outcomes: dict[int, list[bool]] = defaultdict(list)
    for item in samples:
        outcomes[item.problem].append(item.correct)
    problems: dict[str, dict[str, Any]] = {}
    for number, passes in sorted(outcomes.items()):
        total, correct = len(passes), sum(passes)
        chances = {f"pass@{k}": pass_at_k(total, correct, k) for k in (min(k, total) for k in ks)}
        problems[str(number)] = {"total_samples": total, "correct_samples": correct, **chances}
    having = {k: [item[f"pass@{k}"] for item in problems.values() if f"pass@{k}" in item] for k in ks}
    averages = {f"avg_pass@{k}": sum(chances) / len(problems) for k, chances in having.items()} if problems else {}
    return {
        "averages": averages,
        "metadata": {
            "total_problems": len(problems),
            "problems_with_samples": len(problems),
            "total_evaluated_samples": sum(item["total_samples"] for item in problems.values()),
            "total_correct_samples": sum(item["correct_samples"] for item in problems.values()),
            **{f"pass@{k}_count": len(chances) for k, chances in having.items()},
        },
        "problems": problems,
    }

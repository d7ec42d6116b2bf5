"""The figures that KernelBench reports, computed as there: fast_p, geometric mean over correct ones, pass@k.

Edges layer, but pure: the formulas are `scoring`'s, which names their sources. What differs from the public scripts
is only what they get wrong: a sample that is not correct or has no time can't turn a mean into NaN, and times are
paired by problem number instead of by place in two files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.results.kernelbench.formats import KernelBenchBaseline, KernelBenchSample, positive
from harness.results.scoring import THRESHOLDS, fast_p, geometric_mean, pass_at_k


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """`problems` is the denominator of every share. `geomean` is None where no correct one was timed."""

    problems: int
    compiled: int
    correct: int
    geomean: float | None
    fast_p: Mapping[float, float | None]

    def to_json(self) -> dict[str, Any]:
        """With the thresholds as text, as in their analysis files: `fast_p: {"0.5": …}`."""
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
    """The metrics over problems given in one order: is it correct, the baseline's time, its own time.

    The two times share a unit; absent ones (None, -1, NaN) leave a correct one without a speedup: it counts for
    fast_0, which is correctness, and for no other p. Where that is so of all correct ones, nothing is known of the
    other p, and they are None. Raises `ValueError` where the lengths differ.
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
    """The metrics of the samples with one number (theirs: 0), over the baseline's problems and those with samples.

    A problem without that sample counts as a failure, as in KernelBench. One whose sample is null does not count:
    nothing is known of it.
    """
    held = {item.problem: item for item in samples if item.sample == sample}
    unknown = {number for number, item in held.items() if item.absent}
    numbers = sorted((set(baselines) | set(held)) - unknown)
    chosen = [held.get(number) or KernelBenchSample(problem=number, sample=sample, absent=True) for number in numbers]
    return metrics(
        [item.correct for item in chosen],
        [baselines[number].mean_ms if number in baselines else None for number in numbers],
        [item.runtime_ms for item in chosen],
        compiled=sum(item.compiled for item in chosen),
    )


def pass_at_k_document(samples: Iterable[KernelBenchSample], ks: Sequence[int] = (1,)) -> dict[str, Any]:
    """The content of `pass_at_k_results.json`. As there, a problem with fewer than k samples is given for what it
    has, under that number, and counts as 0 in the average for k. Raises `ValueError` for a k below 1.
    """
    if any(k < 1 for k in ks):
        raise ValueError(f"k is at least 1, not {min(ks)}")
    outcomes: dict[int, list[bool]] = defaultdict(list)
    for item in samples:
        outcomes[item.problem].append(item.correct)
    problems: dict[str, dict[str, Any]] = {}
    for number, held in sorted(outcomes.items()):
        found = {f"pass@{k}": pass_at_k(len(held), sum(held), k) for k in (min(k, len(held)) for k in ks)}
        problems[str(number)] = {"total_samples": len(held), "correct_samples": sum(held), **found}
    having: dict[int, list[float]] = {
        k: [item[f"pass@{k}"] for item in problems.values() if f"pass@{k}" in item] for k in ks
    }
    averages = {f"avg_pass@{k}": sum(held) / len(problems) for k, held in having.items()} if problems else {}
    return {
        "averages": averages,
        "metadata": {
            "total_problems": len(problems),
            "problems_with_samples": len(problems),
            "total_evaluated_samples": sum(len(held) for held in outcomes.values()),
            "total_correct_samples": sum(sum(held) for held in outcomes.values()),
            **{f"pass@{k}_count": len(held) for k, held in having.items()},
        },
        "problems": problems,
    }

"""Robust statistics of timings: summaries, intervals of a speedup, what counts as a difference.

Imports numpy and nothing of the harness. Pure: floats in, values out; either side may use it, the referee does.
Times are seconds; a speedup is reference time over solution time, so that above 1 is faster.

**The interval of a speedup.** A pair is one burst of the reference and one of the solution made next to each other, in
the order A B or B A by turns, so that drift of the clocks hits both. Its log ratio is d = log(the reference's burst
time / the solution's), where the time of a burst is the interquartile mean of its samples: deaf to hiccups in up to a
quarter of them, and steady where calls take one of two times by turns, as short ones do on a GPU
(`CudaDevice.time_cold`).
Samples of one burst share its clock and its luck and are no independent measurements, so the pairs are what is counted
(as T. Kalibera and R. Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013, count the highest level of
repetition).

* The estimate is exp of the Hodges-Lehmann median of the d: the median of all averages of two of them (J. L. Hodges and
  E. L. Lehmann, Ann. Math. Stat. 34, 1963). A burst that met a hiccup moves it little.
* From `RANK_PAIRS` pairs on, the interval is that of Wilcoxon's signed-rank test, whose null distribution is exact for
  any symmetric noise: the k-th smallest and largest average (M. Hollander, D. A. Wolfe, E. Chicken, "Nonparametric
  Statistical Methods", 3rd ed., section 3.3).
* With fewer pairs it is Student's t interval of the mean of the d; ranks can't reach 95 % with five pairs.

A bootstrap over pairs was tried first and left: simulated with drift and hiccups, its 95 % percentile interval covers
50 % of the time with two pairs, 79 % with four and 87 % with eight, while the rules above cover 94 % to 97 %
(`tests/unit/core/test_stats.py` repeats that). They need no seed either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

RANK_PAIRS = 8
"""Pairs from which on ranks give the interval; below, their steps are coarse."""

OUTLIER_CUTOFF = 3.5
"""Modified z-score beyond which a sample is marked (B. Iglewicz and D. C. Hoaglin, "How to Detect and Handle Outliers",
ASQC 1993)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One series of times in seconds. Quartiles are interpolated linearly; `mad_s` is the median absolute deviation.

    `outliers` are indices of samples marked, all of which are still in every figure.
    """

    samples: int
    median_s: float
    q1_s: float
    q3_s: float
    mad_s: float
    min_s: float
    max_s: float
    mean_s: float
    outliers: tuple[int, ...]

    @property
    def iqr_s(self) -> float:
        return self.q3_s - self.q1_s

    def to_json(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "median_s": self.median_s,
            "q1_s": self.q1_s,
            "q3_s": self.q3_s,
            "iqr_s": self.iqr_s,
            "mad_s": self.mad_s,
            "min_s": self.min_s,
            "max_s": self.max_s,
            "mean_s": self.mean_s,
            "outliers": list(self.outliers),
        }


def summarise(samples: Sequence[float]) -> Summary:
    """Raises `ValueError` where there is no sample, or one is negative or not finite."""
    values = _times(samples)
    q1, median, q3 = (float(v) for v in np.quantile(values, (0.25, 0.5, 0.75)))
    return Summary(
        samples=len(values),
        median_s=median,
        q1_s=q1,
        q3_s=q3,
        mad_s=float(np.median(np.abs(values - median))),
        min_s=float(values.min()),
        max_s=float(values.max()),
        mean_s=float(values.mean()),
        outliers=tuple(index for index, marked in enumerate(mark_outliers(samples)) if marked),
    )


def mark_outliers(samples: Sequence[float], *, cutoff: float = OUTLIER_CUTOFF) -> tuple[bool, ...]:
    """Which samples lie far from the median, by the modified z-score 0.6745 * |x - median| / MAD.

    Where the MAD is zero (a clock with coarse ticks), 1.2533 times the mean absolute deviation takes its place, as
    Iglewicz and Hoaglin have it. Marks only: nothing is dropped here.
    """
    values = _times(samples)
    deviations = np.abs(values - np.median(values))
    scale = float(np.median(deviations)) / 0.6745
    if scale == 0.0:
        scale = float(deviations.mean()) * 1.2533
    if scale == 0.0:
        return (False,) * len(values)
    return tuple(bool(far) for far in deviations / scale > cutoff)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupEstimate:
    """A ratio of times with its interval. `low` and `high` are None where one pair gives no interval.

    `method` is `signed-rank`, `student-t`, `quotient` or `single pair`.
    """

    speedup: float
    low: float | None
    high: float | None
    confidence: float
    pairs: int
    method: str

    @property
    def half_width(self) -> float | None:
        """The farther end of the interval from the estimate, as a difference of logs: 0.005 is about 0.5 %."""
        if self.low is None or self.high is None:
            return None
        return max(math.log(self.high / self.speedup), math.log(self.speedup / self.low))

    def to_json(self) -> dict[str, Any]:
        return {
            "speedup": self.speedup,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "pairs": self.pairs,
            "method": self.method,
        }


def speedup_interval(
    reference_bursts: Sequence[Sequence[float]],
    solution_bursts: Sequence[Sequence[float]],
    *,
    confidence: float = 0.95,
) -> SpeedupEstimate:
    """The speedup over pairs of bursts: `reference_bursts[i]` and `solution_bursts[i]` were made side by side.

    Each burst holds its samples in seconds, any number of them. The module's docstring gives the method.
    Raises `ValueError` where the numbers of bursts differ, a burst is empty, or a time is not positive and finite.
    """
    if len(reference_bursts) != len(solution_bursts) or not reference_bursts:
        raise ValueError(
            f"a speedup needs as many reference bursts as solution bursts, at least one: "
            f"{len(reference_bursts)} and {len(solution_bursts)} were given"
        )
    return interval_of_logs(
        [math.log(burst_time(a) / burst_time(b)) for a, b in zip(reference_bursts, solution_bursts, strict=True)],
        confidence=confidence,
    )


def interval_of_logs(logs: Sequence[float], *, confidence: float = 0.95) -> SpeedupEstimate:
    """The speedup and its interval from one log ratio per pair."""
    if not 0.5 < confidence < 1.0:
        raise ValueError(f"a confidence lies between 0.5 and 1, not at {confidence}")
    values = np.asarray(logs, dtype=np.float64)
    count = len(values)
    averages = _pairwise_averages(values)
    centre = float(np.median(averages))
    if count == 1:
        return SpeedupEstimate(
            speedup=math.exp(centre), low=None, high=None, confidence=confidence, pairs=1, method="single pair"
        )
    if count >= RANK_PAIRS and (rank := _signed_rank_cut(count, confidence)) > 0:
        low, high, method = float(averages[rank - 1]), float(averages[-rank]), "signed-rank"
    else:
        reach = student_t(confidence, count - 1) * float(values.std(ddof=1)) / math.sqrt(count)
        mean = float(values.mean())
        low, high, method = min(mean - reach, centre), max(mean + reach, centre), "student-t"
    return SpeedupEstimate(
        speedup=math.exp(centre),
        low=math.exp(low),
        high=math.exp(high),
        confidence=confidence,
        pairs=count,
        method=method,
    )


def quotient(a: SpeedupEstimate, b: SpeedupEstimate) -> SpeedupEstimate:
    """How many times faster `a` is than `b`, both measured against the same reference, independently.

    The interval's ends add in squares on the log scale (error propagation for independent quantities).
    """
    speedup = a.speedup / b.speedup
    shared = {
        "speedup": speedup,
        "confidence": min(a.confidence, b.confidence),
        "pairs": min(a.pairs, b.pairs),
        "method": "quotient",
    }
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return SpeedupEstimate(low=None, high=None, **shared)  # type: ignore[arg-type]
    down = math.hypot(math.log(a.speedup / a.low), math.log(b.high / b.speedup))
    up = math.hypot(math.log(a.high / a.speedup), math.log(b.speedup / b.low))
    return SpeedupEstimate(low=speedup * math.exp(-down), high=speedup * math.exp(up), **shared)  # type: ignore[arg-type]


SAME_AT_MOST = 0.10
"""Widest share by which a speedup may be off 1 and still be called the same: beyond it, too little is known."""


def may_be_one(speedup: float, low: float | None, high: float | None, *, floor: float) -> bool:
    """Whether the speedup's interval, widened by the noise `floor` (a difference of logs) on both sides, holds 1."""
    return math.log(low or speedup) - floor <= 0.0 <= math.log(high or speedup) + floor


def same_within(speedup: float, low: float | None, high: float | None, *, floor: float) -> float | None:
    """The share within which this speedup is 1; None where it is not, or where too little is known to say so.

    It is 1 where it `may_be_one`. The share is the farthest that the interval or the floor reaches: 0.004 is 0.4 %.
    """
    if not may_be_one(speedup, low, high, floor=floor):
        return None
    share = math.expm1(max(floor, *(abs(math.log(end or speedup)) for end in (low, high))))
    return share if share <= SAME_AT_MOST else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """How far a ratio can be from 1 where nothing differs. `log_width` is a difference of logs: 0.01 is about 1 %."""

    log_width: float
    pairs: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.log_width) and self.log_width >= 0.0):
            raise ValueError(f"a noise floor is a finite width from 0 up, not {self.log_width}")

    def to_json(self) -> dict[str, Any]:
        return {"log_width": self.log_width, "pairs": self.pairs}


def noise_floor(aa: SpeedupEstimate, *, least: float = 0.0) -> NoiseFloor:
    """The floor from bursts of the reference against itself: the end of their interval farther from 1, or `least`.

    It holds the bias of the measurement (a first burst that is always slower) as well as its scatter.
    """
    ends = [value for value in (aa.speedup, aa.low, aa.high) if value is not None]
    return NoiseFloor(log_width=max(least, *(abs(math.log(value)) for value in ends)), pairs=aa.pairs)


def student_t(confidence: float, freedom: int) -> float:
    """The two-sided quantile of Student's t with a whole number of degrees of freedom, within 1e-9.

    The distribution function is M. Abramowitz and I. A. Stegun, 26.7.3 and 26.7.4; it is inverted by bisection.
    """
    if freedom < 1:
        raise ValueError("Student's t needs at least one degree of freedom")

    def inside(t: float) -> float:
        angle = math.atan2(t, math.sqrt(freedom))
        square = math.cos(angle) ** 2
        term, total = 1.0, 0.0
        if freedom % 2:
            for k in range(1, freedom - 1, 2):
                total += term
                term *= square * (k + 1) / (k + 2)
            return 2.0 / math.pi * (angle + math.sin(angle) * math.cos(angle) * total)
        for k in range(0, freedom - 1, 2):
            total += term
            term *= square * (k + 1) / (k + 2)
        return math.sin(angle) * total

    low, high = 0.0, 1.0
    while inside(high) < confidence:
        high *= 2.0
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < confidence else (low, middle)
    return (low + high) / 2


def _signed_rank_cut(count: int, confidence: float) -> int:
    """How many of the smallest averages bound the tail: the largest k with P(W < k) <= (1 - confidence) / 2."""
    tail = (1.0 - confidence) / 2
    total = count * (count + 1) // 2
    if count > 200:  # beyond, the normal approximation is good to a rank
        spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
        return max(0, math.floor(total / 2 + NormalDist().inv_cdf(tail) * spread))
    ways = np.zeros(total + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        shifted = np.zeros_like(ways)
        shifted[rank:] = ways[:-rank]
        ways = (ways + shifted) / 2.0
    return int(np.searchsorted(np.cumsum(ways), tail, side="right"))


def _pairwise_averages(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Any:
    """All averages of two values, each with itself included, sorted."""
    rows, columns = np.tril_indices(len(values))
    return np.sort((values[rows] + values[columns]) / 2.0)


def burst_time(samples: Sequence[float]) -> float:
    """The time of a burst, in seconds: the mean of its samples without the lowest and the highest quarter, of which
    each has one sample at least where there are three or more.

    Raises `ValueError` where there is no sample, or one is not positive and finite.
    """
    values = np.sort(_times(samples))
    if values[0] <= 0.0:
        raise ValueError(
            "a time of zero has no ratio: the clock is too coarse for this kernel, repeat it in one window"
        )
    count = len(values)
    cut = max(1, count // 4) if count >= 3 else 0
    return float(values[cut : count - cut].mean())


def _times(samples: Sequence[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError("a series of times needs at least one sample")
    if not (np.isfinite(values).all() and (values >= 0.0).all()):
        raise ValueError("times are finite and not negative")
    return values

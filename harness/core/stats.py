"""Statistics of timings: summaries, intervals of speedups, noise floor.

Times are in seconds. A speedup is the reference's time over the solution's, so above 1 is faster.

A pair is one burst of the reference and one of the solution, made next to each other. Its log ratio is
d = log(time of the reference's burst / time of the solution's burst), with `burst_time` as the time of a burst.

* Estimate: exp of the Hodges-Lehmann median of all d, the median of the averages of any two (J. L. Hodges and
  E. L. Lehmann, Ann. Math. Stat. 34, 1963).
* Interval from `RANK_PAIRS` pairs on: Wilcoxon's signed-rank test, the k-th smallest and largest average
  (M. Hollander, D. A. Wolfe, E. Chicken, "Nonparametric Statistical Methods", 3rd ed., section 3.3).
* Interval with fewer pairs: Student's t for the mean of the d.

See guides/design/statistics.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from harness.core.json_value import JsonObject

RANK_PAIRS = 8
"""Least number of pairs for the signed-rank interval; with fewer, its steps are too coarse."""

OUTLIER_CUTOFF = 3.5
"""Modified z-score above which a sample is an outlier (B. Iglewicz and D. C. Hoaglin, "How to Detect and Handle
Outliers", ASQC 1993)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of one series of times, in seconds.

    Attributes:
        samples: Number of samples.
        median_s: Median.
        q1_s: First quartile, interpolated linearly.
        q3_s: Third quartile, interpolated linearly.
        mad_s: Median absolute deviation from the median.
        min_s: Smallest sample.
        max_s: Largest sample.
        mean_s: Mean.
        outliers: Indices of outliers (`mark_outliers`). All values above include them.
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
    """Summarise times in seconds.

    Raises:
        ValueError: There is no sample, or one is negative or not finite.
    """
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
    """Mark samples whose modified z-score is above `cutoff`.

    The score is 0.6745 * |x - median| / MAD.

    If the MAD is zero (a clock with coarse ticks), 1.2533 times the mean absolute deviation replaces MAD / 0.6745
    (B. Iglewicz and D. C. Hoaglin 1993). No sample is dropped.

    Args:
        samples: Times in seconds.
        cutoff: Modified z-score above which a sample is an outlier.

    Returns:
        One boolean for each sample.

    Raises:
        ValueError: There is no sample, or one is negative or not finite.
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
class SpeedupEstimate(JsonObject):
    """A speedup with its confidence interval.

    Attributes:
        speedup: Ratio of times; above 1 is faster.
        low: Lower end of the interval; None if there is only one pair.
        high: Upper end of the interval; None if there is only one pair.
        confidence: Confidence level of the interval, such as 0.95.
        pairs: Number of pairs of bursts.
        method: `signed-rank`, `student-t`, `quotient`, `geometric mean` or `single pair`.
    """

    speedup: float
    low: float | None
    high: float | None
    confidence: float
    pairs: int
    method: str

    @property
    def half_width(self) -> float | None:
        """Larger distance of an interval's end from the estimate.

        It is a difference of logs: 0.005 is about 0.5 %.
        """
        if self.low is None or self.high is None:
            return None
        return max(math.log(self.high / self.speedup), math.log(self.speedup / self.low))


def speedup_interval(
    reference_bursts: Sequence[Sequence[float]],
    solution_bursts: Sequence[Sequence[float]],
    *,
    confidence: float = 0.95,
) -> SpeedupEstimate:
    """Estimate the speedup from pairs of bursts (method: the module's docstring).

    Args:
        reference_bursts: Samples of each burst of the reference, in seconds.
        solution_bursts: Samples of each burst of the solution, in seconds; burst i was made next to the
            reference's burst i.
        confidence: Confidence level of the interval, between 0.5 and 1.

    Returns:
        The speedup with its interval.

    Raises:
        ValueError: The numbers of bursts differ, a burst is empty, or a time is not positive and finite.
    """
    if len(reference_bursts) != len(solution_bursts) or not reference_bursts:
        raise ValueError(
            f"a speedup needs the same number of reference and solution bursts, at least one of each, "
            f"not {len(reference_bursts)} and {len(solution_bursts)}"
        )
    return interval_of_logs(
        [math.log(burst_time(a) / burst_time(b)) for a, b in zip(reference_bursts, solution_bursts, strict=True)],
        confidence=confidence,
    )


def interval_of_logs(logs: Sequence[float], *, confidence: float = 0.95) -> SpeedupEstimate:
    """Estimate the speedup and its interval from one log ratio of times for each pair.

    Args:
        logs: log(time of the reference / time of the solution) of each pair, at least one.
        confidence: Confidence level of the interval, between 0.5 and 1.

    Returns:
        The speedup with its interval.

    Raises:
        ValueError: The confidence level is out of range.
    """
    if not 0.5 < confidence < 1.0:
        raise ValueError(f"the confidence must be between 0.5 and 1, not {confidence}")
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
    """Divide two independent speedups: how many times `a` is faster than `b`.

    Both are measured against the same reference.

    The distances of the interval's ends add in squares on the log scale (error propagation for independent
    quantities).
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


def geometric_mean(estimates: Sequence[SpeedupEstimate], weights: Sequence[float]) -> SpeedupEstimate:
    """Return the weighted geometric mean of independent speedups.

    On the log scale, the distances of an interval's ends add in squares (error propagation for independent quantities).

    Args:
        estimates: The speedups, at least one.
        weights: A positive weight for each.

    Returns:
        The mean. It has an interval if each speedup has one; `pairs` is the number of speedups.
    """
    total = math.fsum(weights)
    shares = [weight / total for weight in weights]
    speedup = math.exp(math.fsum(w * math.log(each.speedup) for w, each in zip(shares, estimates, strict=True)))
    down, up = 0.0, 0.0
    whole = True
    for share, each in zip(shares, estimates, strict=True):
        if each.low is None or each.high is None:
            whole = False
            break
        down = math.hypot(down, share * math.log(each.speedup / each.low))
        up = math.hypot(up, share * math.log(each.high / each.speedup))
    return SpeedupEstimate(
        speedup=speedup,
        low=speedup * math.exp(-down) if whole else None,
        high=speedup * math.exp(up) if whole else None,
        confidence=min(each.confidence for each in estimates),
        pairs=len(estimates),
        method="geometric mean",
    )


SAME_AT_MOST = 0.10
"""Largest share that a speedup of "the same" may be off 1; with a wider interval the result is undecided."""


def may_be_one(speedup: float, low: float | None, high: float | None, *, floor: float) -> bool:
    """Tell whether the interval, widened by the noise floor, contains 1.

    Args:
        speedup: The speedup.
        low: Lower end of its interval; None takes the speedup.
        high: Upper end of its interval; None takes the speedup.
        floor: Noise floor, as a difference of logs.
    """
    return math.log(low or speedup) - floor <= 0.0 <= math.log(high or speedup) + floor


def same_within(speedup: float, low: float | None, high: float | None, *, floor: float) -> float | None:
    """Return the share within which the speedup is 1 (0.004 is 0.4 %).

    The share is the largest distance from 1 of the interval's ends and of the noise floor.

    Args:
        speedup: The speedup.
        low: Lower end of its interval; None takes the speedup.
        high: Upper end of its interval; None takes the speedup.
        floor: Noise floor, as a difference of logs.

    Returns:
        The share, or None if the speedup differs from 1 (`may_be_one`) or the share exceeds `SAME_AT_MOST`.
    """
    if not may_be_one(speedup, low, high, floor=floor):
        return None
    share = math.expm1(max(floor, *(abs(math.log(end or speedup)) for end in (low, high))))
    return share if share <= SAME_AT_MOST else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor(JsonObject):
    """The smallest ratio of times that the measurement can tell from 1.

    Attributes:
        log_width: The ratio as a difference of logs: 0.01 is about 1 %.
        pairs: Number of pairs of bursts that it comes from.
    """

    log_width: float
    pairs: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.log_width) and self.log_width >= 0.0):
            raise ValueError(f"a noise floor must be finite and at least 0, not {self.log_width}")


def noise_floor(aa: SpeedupEstimate, *, least: float = 0.0) -> NoiseFloor:
    """Compute the noise floor from bursts of the reference against itself.

    It is the largest distance from 1 of the estimate and the ends of its interval. So it includes the bias of the
    measurement (a first burst that is always slower) and its scatter.

    Args:
        aa: Speedup of the reference against itself.
        least: Smallest floor, as a difference of logs.
    """
    ends = [value for value in (aa.speedup, aa.low, aa.high) if value is not None]
    return NoiseFloor(log_width=max(least, *(abs(math.log(value)) for value in ends)), pairs=aa.pairs)


def drift_of_bursts(bursts: Sequence[Sequence[float]]) -> float:
    """Compute the standard deviation of the logs of burst times.

    Bursts of one series differ by noise and by states of the device that last for several bursts. An interval that
    takes pairs as independent does not include those states.

    Args:
        bursts: Samples of each burst, in seconds.

    Returns:
        A difference of logs; 0 for fewer than two bursts.
    """
    logs = [math.log(burst_time(burst)) for burst in bursts]
    return float(np.std(logs, ddof=1)) if len(logs) > 1 else 0.0


@functools.cache
def student_t(confidence: float, freedom: int) -> float:
    """Compute the two-sided quantile of Student's t distribution, within 1e-9.

    The distribution function is from M. Abramowitz and I. A. Stegun, 26.7.3 and 26.7.4; bisection inverts it.

    Args:
        confidence: Probability between the two quantiles.
        freedom: Degrees of freedom, a whole number.

    Raises:
        ValueError: `freedom` is below 1.
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


@functools.cache
def _signed_rank_cut(count: int, confidence: float) -> int:
    """Return the largest k with P(W < k) <= (1 - confidence) / 2.

    W is the signed-rank statistic.
    """
    tail = (1.0 - confidence) / 2
    total = count * (count + 1) // 2
    if count > 200:  # the normal approximation is exact to one rank here
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
    """Return all averages of two values, each with itself included, sorted."""
    rows, columns = np.tril_indices(len(values))
    return np.sort((values[rows] + values[columns]) / 2.0)


def burst_time(samples: Sequence[float]) -> float:
    """Compute the time of a burst: the interquartile mean of its samples.

    It is the mean without the lowest and the highest quarter.

    With three samples or more, at least one is dropped on each side.

    Args:
        samples: Times in seconds.

    Returns:
        The time in seconds.

    Raises:
        ValueError: There is no sample, or one is not positive and finite.
    """
    values = np.sort(_times(samples))
    if values[0] <= 0.0:
        raise ValueError(
            "a measured time is zero: the clock is too coarse for this kernel; measure several calls together"
        )
    count = len(values)
    cut = max(1, count // 4) if count >= 3 else 0
    return float(values[cut : count - cut].mean())


def _times(samples: Sequence[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError("a series of times needs at least one sample")
    if not (np.isfinite(values).all() and (values >= 0.0).all()):
        raise ValueError("times must be finite and not negative")
    return values

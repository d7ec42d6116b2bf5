"""Intervals on simulated and recorded series."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.stats import (
    NoiseFloor,
    SpeedupEstimate,
    burst_time,
    interval_of_logs,
    mark_outliers,
    noise_floor,
    quotient,
    same_within,
    speedup_interval,
    student_t,
    summarise,
)
from harness.referee.timing.stopping import Stopping
from tests.support.paths import TESTS

SERIES = json.loads((TESTS / "golden" / "timing_series.json").read_text())["series"]


def simulate(rng: np.random.Generator, pairs: int, *, speedup: float, samples: int = 8) -> tuple[Any, Any]:
    """Bursts A B B A with a drifting clock, noise per burst and per sample, late samples and hiccups."""
    drift = np.cumsum(rng.normal(0, 0.002, 2 * pairs))
    drift += rng.normal(0, 0.003, 2 * pairs) + np.where(
        rng.random(2 * pairs) < 0.04, rng.exponential(0.05, 2 * pairs), 0
    )
    reference, solution = [], []
    for burst in range(2 * pairs):
        is_reference = burst % 4 in (0, 3)
        times = (speedup if is_reference else 1.0) * np.exp(drift[burst] + rng.normal(0, 0.01, samples))
        times *= np.where(rng.random(samples) < 0.05, 1 + rng.exponential(0.3, samples), 1)
        (reference if is_reference else solution).append(times.tolist())
    return reference, solution


@pytest.mark.parametrize("pairs", [2, 4, 8, 12, 20])
def test_the_interval_covers_the_truth_as_often_as_it_says(pairs: int) -> None:
    rng = np.random.default_rng(pairs)
    repeats = 800
    hits = 0
    for _ in range(repeats):
        found = speedup_interval(*simulate(rng, pairs, speedup=1.3))
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.speedup <= found.high
        hits += found.low <= 1.3 <= found.high
    # Three standard errors of 800 repeats at 95 % are 2.3 %; noise of hiccups only makes it cover more.
    assert 0.927 <= hits / repeats <= 0.995


def test_a_percentile_bootstrap_would_not_cover() -> None:
    """Why there is none: the note in the module's docstring."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        reference, solution = simulate(rng, 4, speedup=1.3)
        logs = np.log([burst_time(a) / burst_time(b) for a, b in zip(reference, solution, strict=True)])
        means = logs[rng.integers(0, 4, (1000, 4))].mean(axis=1)
        low, high = np.quantile(means, (0.025, 0.975))
        hits += low <= math.log(1.3) <= high
    assert hits / 300 < 0.87


def test_a_burst_counts_by_its_middle_half() -> None:
    assert burst_time([3.0]) == 3.0
    assert burst_time([3.0, 5.0]) == 4.0
    assert burst_time([9.0, 1.0, 3.0]) == 3.0  # with three it is the median
    assert burst_time([1.0, 2.0, 4.0, 900.0]) == 3.0
    assert burst_time([0.1, 0.1, 2.0, 3.0, 4.0, 5.0, 900.0, 900.0]) == 3.5
    with pytest.raises(ValueError, match="too coarse"):
        burst_time([0.0, 1.0])


def test_calls_that_take_one_of_two_times_need_no_luck() -> None:
    """Short calls do on a GPU, by turns: half of them may be at either side of a burst's median."""
    rng = np.random.default_rng(11)
    bursts = 9.0 + 0.85 * rng.integers(0, 2, (4000, 8)) + rng.normal(0.0, 0.05, (4000, 8))
    times, medians = [burst_time(burst) for burst in bursts], np.median(bursts, axis=1)
    assert np.std(times) < 0.9 * np.std(medians)


def test_measuring_until_narrow_still_calls_a_twin_the_same() -> None:
    rng = np.random.default_rng(5)
    fired: dict[str, int] = {}
    off, far = 0, 0
    for _ in range(200):
        reference, solution = simulate(rng, 40, speedup=1.0)
        stopping = Stopping(budget_s=30.0)
        for pairs in range(1, 41):
            found = speedup_interval(reference[:pairs], solution[:pairs])
            rule = stopping.add(found, spent_s=1.0)
            if rule is not None and pairs % 2 == 0:  # as `measure.run_rounds` has it
                break
        assert rule is not None
        fired[rule] = fired.get(rule, 0) + 1
        assert found.low is not None
        assert found.high is not None
        off += not found.low <= 1.0 <= found.high
        far += abs(math.log(found.speedup)) > 0.01
    assert far / 200 <= 0.05
    assert off / 200 <= 0.15  # stopping at narrow intervals costs some coverage; the floor is there for it
    assert fired["interval"] > 100


@pytest.mark.parametrize("scatter", [0.002, 0.004, 0.006])
def test_an_interval_that_measuring_ended_by_still_covers(scatter: float) -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(400):
        logs = rng.normal(0.0, scatter, 24)
        for pairs in range(4, 25, 2):
            found = interval_of_logs(list(logs[:pairs]))
            assert found.low is not None
            assert found.high is not None
            if Stopping(budget_s=30.0).add(found, spent_s=1.0) == "interval":
                break
        covered += found.low <= 1.0 <= found.high
    assert covered / 400 >= 0.9


class TestRecordedSeries:
    """Timings of torch calls, hiccups included (`golden/timing_series.json` says where from)."""

    @pytest.mark.parametrize("name", ["matmul_300_against_itself", "relu_1m_against_itself"])
    def test_a_call_against_itself_is_the_same(self, name: str) -> None:
        found = speedup_interval(SERIES[name]["reference"], SERIES[name]["solution"])
        assert found.method == "signed-rank"
        assert found.low is not None
        assert found.high is not None
        assert found.low <= 1.0 <= found.high
        assert found.half_width is not None
        assert found.half_width < 0.01
        assert same_within(found.speedup, found.low, found.high, floor=0.0) == pytest.approx(found.half_width, rel=0.5)

    def test_twice_the_work_is_half_the_speed(self) -> None:
        floor = noise_floor(speedup_interval(**_bursts("relu_1m_against_itself")))
        found = speedup_interval(**_bursts("relu_1m_against_two_relus"))
        assert found.speedup == pytest.approx(0.5, rel=0.01)
        assert same_within(found.speedup, found.low, found.high, floor=floor.log_width) is None

    def test_the_first_burst_s_hiccup_does_not_move_the_estimate(self) -> None:
        bursts = _bursts("matmul_300_against_itself")
        assert max(bursts["reference_bursts"][0]) > 5 * min(bursts["reference_bursts"][0])
        without = speedup_interval(bursts["reference_bursts"][1:], bursts["solution_bursts"][1:])
        assert speedup_interval(**bursts).speedup == pytest.approx(without.speedup, rel=0.003)

    def test_reversed_roles_give_the_reciprocal(self) -> None:
        bursts = _bursts("relu_1m_against_two_relus")
        there = speedup_interval(bursts["reference_bursts"], bursts["solution_bursts"])
        back = speedup_interval(bursts["solution_bursts"], bursts["reference_bursts"])
        assert there.low is not None
        assert back.speedup == pytest.approx(1 / there.speedup)
        assert back.high == pytest.approx(1 / there.low)

    def test_outliers_are_marked_and_kept(self) -> None:
        samples = (
            SERIES["matmul_300_against_itself"]["reference"][0] + SERIES["matmul_300_against_itself"]["reference"][1]
        )
        found = summarise(samples)
        assert set(found.outliers) >= {0, 1, 2, 3, 4}
        assert found.samples == 16
        assert found.max_s == max(samples)
        assert found.mean_s == pytest.approx(sum(samples) / 16)


def _bursts(name: str) -> dict[str, Any]:
    return {"reference_bursts": SERIES[name]["reference"], "solution_bursts": SERIES[name]["solution"]}


def test_signed_rank_bounds_are_those_of_the_tables() -> None:
    """For n = 8, 10 and 20 at 95 % the tables give the averages of rank 4, 9 and 53 from either end."""
    for count, rank in ((8, 4), (10, 9), (20, 53)):
        logs = [0.001 * k * k for k in range(count)]
        averages = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[: i + 1])
        found = interval_of_logs(logs)
        assert found.method == "signed-rank"
        assert found.low is not None
        assert found.high is not None
        assert math.log(found.low) == pytest.approx(averages[rank - 1])
        assert math.log(found.high) == pytest.approx(averages[-rank])


def test_many_pairs_use_the_normal_approximation_without_a_step() -> None:
    rng = np.random.default_rng(2)
    logs = rng.normal(0.1, 0.01, 230).tolist()
    exact, approximate = interval_of_logs(logs[:200]), interval_of_logs(logs[:201])
    assert exact.half_width == pytest.approx(approximate.half_width, rel=0.05)


@pytest.mark.parametrize(
    ("confidence", "freedom", "value"),
    [(0.95, 1, 12.7062047362), (0.95, 2, 4.3026527297), (0.95, 3, 3.1824463053), (0.95, 6, 2.4469118511),
     (0.95, 7, 2.3646242516), (0.99, 4, 4.6040948714), (0.95, 30, 2.0422724563)],
)  # fmt: skip
def test_student_t(confidence: float, freedom: int, value: float) -> None:
    assert student_t(confidence, freedom) == pytest.approx(value, rel=1e-9)


def test_one_pair_has_no_interval_and_two_have_a_wide_one() -> None:
    one = speedup_interval([[2.0, 2.2]], [[1.0]])
    assert (one.speedup, one.low, one.high, one.method) == (pytest.approx(2.1), None, None, "single pair")
    assert one.half_width is None
    two = speedup_interval([[2.0], [2.2]], [[1.0], [1.0]])
    assert two.speedup == pytest.approx(math.sqrt(4.4))
    assert two.half_width == pytest.approx(12.7062 * math.log(1.1) / 2, rel=1e-4)


@given(
    logs=st.lists(st.floats(-3, 3), min_size=2, max_size=30),
    scale=st.floats(0.01, 100),
)
@settings(max_examples=80, deadline=None)
def test_scaling_the_solution_scales_the_speedup(logs: list[float], scale: float) -> None:
    bursts = [[math.exp(v)] for v in logs]
    before = speedup_interval(bursts, [[1.0]] * len(logs))
    after = speedup_interval(bursts, [[scale]] * len(logs))
    assert after.speedup * scale == pytest.approx(before.speedup, rel=1e-9)
    assert before.low is not None
    assert before.high is not None
    assert before.low <= before.speedup <= before.high


@pytest.mark.parametrize(
    ("reference", "solution"),
    [([], []), ([[1.0]], []), ([[1.0]], [[]]), ([[1.0]], [[0.0]]), ([[1.0]], [[-1.0]]), ([[math.nan]], [[1.0]])],
)
def test_impossible_times_are_refused(reference: list[list[float]], solution: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"burst|sample|time"):
        speedup_interval(reference, solution)


class TestSummary:
    def test_quartiles_and_deviation(self) -> None:
        found = summarise([1.0, 2.0, 3.0, 4.0, 5.0])
        assert (found.q1_s, found.median_s, found.q3_s, found.mad_s, found.iqr_s) == (2.0, 3.0, 4.0, 1.0, 2.0)
        assert found.outliers == ()
        json.dumps(found.to_json(), allow_nan=False)

    def test_a_coarse_clock_still_has_outliers(self) -> None:
        assert mark_outliers([1.0] * 20 + [9.0]) == (False,) * 20 + (True,)
        assert mark_outliers([1.0] * 5) == (False,) * 5
        assert mark_outliers([3.0]) == (False,)

    def test_no_samples(self) -> None:
        with pytest.raises(ValueError, match="at least one"):
            summarise([])


class TestNoiseFloor:
    @staticmethod
    def estimate(speedup: float, low: float | None, high: float | None) -> SpeedupEstimate:
        return SpeedupEstimate(speedup=speedup, low=low, high=high, confidence=0.95, pairs=8, method="student-t")

    @pytest.mark.parametrize(
        ("values", "share"),
        [
            ((1.005, 0.99, 1.02), 0.02),
            ((1.008, 1.007, 1.009), 0.01),  # inside the floor, though its own interval is not
            ((0.995, 0.985, 0.9925), 0.0152),
            ((1.05, 1.02, 1.08), None),
            ((0.95, 0.93, 0.97), None),
            ((1.3, 0.8, 1.8), None),  # too little is known
            ((2.0, None, None), None),
            ((1.002, None, None), 0.01),
        ],
    )
    def test_the_same_within(self, values: tuple[float, float | None, float | None], share: float | None) -> None:
        found = same_within(*values, floor=math.log(1.01))
        assert found == (None if share is None else pytest.approx(share, abs=1e-4))

    def test_the_floor_holds_the_bias_of_the_measurement(self) -> None:
        assert noise_floor(self.estimate(1.03, 1.02, 1.04)).log_width == pytest.approx(math.log(1.04))
        assert noise_floor(self.estimate(1.001, 0.999, 1.002), least=0.005).log_width == 0.005
        with pytest.raises(ValueError, match="noise floor"):
            NoiseFloor(log_width=math.nan, pairs=1)

    def test_a_quotient_of_speedups_keeps_both_uncertainties(self) -> None:
        found = quotient(self.estimate(2.0, 1.9, 2.1), self.estimate(1.0, 0.97, 1.03))
        assert found.speedup == 2.0
        assert found.low is not None
        assert found.low < 1.9
        assert quotient(self.estimate(2.0, None, None), self.estimate(1.0, 0.9, 1.1)).low is None


def test_seven_pairs_have_students_interval_and_eight_the_signed_rank_one() -> None:
    """With seven, the 95 % interval would reach from the smallest average but two to the largest but two."""
    logs = [0.01 * k * k for k in range(8)]
    assert interval_of_logs(logs[:7]).method == "student-t"
    assert interval_of_logs(logs).method == "signed-rank"

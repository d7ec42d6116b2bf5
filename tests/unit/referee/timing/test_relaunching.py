"""When the time of relaunched work counts."""

from __future__ import annotations

import pytest

from harness.referee.timing.relaunching import RelaunchedTimes, typical

TWO_PLACES = [7.0e-6, 7.9e-6] * 8


def test_two_typical_times_have_their_mean_whatever_comes_more_often() -> None:
    assert typical(TWO_PLACES) == pytest.approx(7.45e-6)
    assert typical([*TWO_PLACES[2:], 1e-3, 2e-3]) == pytest.approx(7.45e-6, rel=0.03)


@pytest.mark.parametrize(
    ("claimed_s", "relaunched_s", "factor"),
    [
        (50e-6, 50.4e-6, 1.0),
        (50e-6, 51e-6, 1.02),
        (50e-6, 40e-6, 1.0),
        (9e-6, 9.15e-6, 1.0),
        (9e-6, 9.9e-6, 1.1),
        (4e-3, 4.03e-3, 1.0),
        (4e-3, 4.06e-3, 1.015),
    ],
)
def test_more_than_one_percent_and_a_fifth_of_a_microsecond_count(
    claimed_s: float, relaunched_s: float, factor: float
) -> None:
    held = RelaunchedTimes(samples_s=[[relaunched_s] * 16])
    assert held.factor(claimed_s) == pytest.approx(factor)
    assert held.to_json(claimed_s)["factor"] == pytest.approx(factor)


def test_the_least_of_several_processes_counts() -> None:
    assert RelaunchedTimes(samples_s=[[60e-6] * 16, [55e-6] * 16]).factor(50e-6) == pytest.approx(1.1)


def test_work_that_was_not_relaunched_changes_nothing() -> None:
    held = RelaunchedTimes(lack="the call uses cuGraphLaunch", spent_s=0.1)
    assert held.factor(1e-6) == 1.0
    assert held.to_json(1e-6) == {"lack": "the call uses cuGraphLaunch", "spent_s": 0.1}

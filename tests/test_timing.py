"""The reference's times beside a solution against those before it was started."""

from __future__ import annotations

import pytest

from harness.timing import DISTURBED_FACTOR, _undisturbed

BURSTS = [[1.0, 1.02, 0.98], [1.01, 0.99, 1.0]]


def test_a_baseline_that_a_solution_slowed_counts_as_it_was_before() -> None:
    slowed = [[2.0 * time_s for time_s in burst] for burst in BURSTS]
    bursts, disturbed = _undisturbed(slowed, quiet_s=1.0)
    assert disturbed
    assert [time_s for burst in bursts for time_s in burst] == pytest.approx([t for burst in BURSTS for t in burst])


@pytest.mark.parametrize("quiet_s", [None, 1.0, 2.0, 1.0 / DISTURBED_FACTOR + 1e-6])
def test_small_differences_and_slower_beginnings_change_nothing(quiet_s: float | None) -> None:
    assert _undisturbed(BURSTS, quiet_s) == (BURSTS, False)

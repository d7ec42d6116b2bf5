"""Which of several records on the same thing is the latest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from harness.results.latest import CLOCKS_DIFFER, finished, recency
from tests.unit.results.test_writer import record


def at(when: str) -> datetime | None:
    return finished(record("0.py", finished_at=when))


@pytest.mark.parametrize("when", ["", "tomorrow", "9999", "0001-01-01T00:00:00+14:00", "2026-13-01", "2999", "\x00"])
def test_what_is_no_time_that_has_been_is_none(when: str) -> None:
    if when.startswith("0001"):  # before all that can be said in UTC: a time, and older than any other
        assert at(when) is not None
    else:
        assert at(when) is None
    assert recency(record("0.py", finished_at=when)) < recency(record("0.py", finished_at="1970-01-01T00:00:00+00:00"))


def test_a_time_is_the_same_in_every_zone() -> None:
    assert at("2026-01-01T12:00:00+02:00") == at("2026-01-01T10:00:00Z") == at("2026-01-01T10:00:00")


def test_clocks_of_machines_may_differ_a_little() -> None:
    now = datetime.now(UTC)
    assert at((now + CLOCKS_DIFFER / 2).isoformat()) is not None
    assert at((now + CLOCKS_DIFFER + timedelta(minutes=1)).isoformat()) is None


def test_a_clock_may_be_some_hours_ahead_and_no_two_days() -> None:
    now = datetime.now(UTC)
    assert at((now + timedelta(hours=12)).isoformat()) is not None
    assert at((now + timedelta(hours=36)).isoformat()) is None

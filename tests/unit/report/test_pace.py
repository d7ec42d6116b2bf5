"""The line of a long run, over a made-up clock."""

from __future__ import annotations

from harness.core.status import Status
from harness.report.pace import WINDOW, Pace


def test_the_line_counts_rate_time_left_and_each_device() -> None:
    pace = Pace(total=10, now_s=100.0)
    assert pace.line() == "0/10 done, 0 passed, 0 failed"
    for number, status in enumerate((Status.passed, Status.wrong_value, Status.harness_error, Status.passed)):
        pace.finished(status, f"GPU {number % 2}", 100.0 + 2.0 * (number + 1))
    pace.finished(Status.compile_error, None, 110.0)
    assert pace.rate_per_s() == 0.5
    assert pace.left_s() == 10.0
    line = pace.line()
    assert line.startswith("5/10 done, 2 passed, 2 failed, 1 without a verdict, 1800 per hour, 10.0 s left")
    assert line.endswith("(GPU 0: 2, GPU 1: 2)")


def test_the_rate_is_of_the_latest() -> None:
    pace = Pace(total=1000, now_s=0.0)
    for number in range(1, 101):
        pace.finished(Status.passed, "host", float(number))
    for number in range(1, WINDOW + 1):
        pace.finished(Status.passed, "host", 100.0 + 0.1 * number)
    rate = pace.rate_per_s()
    assert rate is not None
    assert abs(rate - 10.0) < 1e-6


def test_nothing_is_divided_by_a_clock_that_stands_still() -> None:
    pace = Pace(total=2, now_s=5.0)
    pace.finished(Status.passed, None, 5.0)
    assert pace.rate_per_s() is None
    assert "left" not in pace.line()

"""Empty calls: made like any other, and what two processes differ by."""

from __future__ import annotations

import itertools
import statistics

import pytest

from harness import empty
from harness.devices import open_device
from harness.empty import CALLS, FIRST_SERIES, LATEST_SERIES, MORE_SERIES, MOST_S, WARM, beyond_s, empty_call_s
from harness.model import DeviceKind
from harness.quiet import PROCESS_BIAS_S
from tests.benchmarks.bench_processes import document


def test_each_kind_of_place_in_the_queue_comes_as_often() -> None:
    """`CudaDevice.time_cold` makes a launch more before every other call."""
    assert CALLS % 2 == WARM % 2 == 0


def test_an_empty_call_takes_some_time_on_any_device() -> None:
    assert 0.0 < empty_call_s(open_device(DeviceKind.HOST)) < 1e-2


def test_the_referees_own_is_the_mean_of_the_latest_series(monkeypatch: pytest.MonkeyPatch) -> None:
    device, made = open_device(DeviceKind.HOST), itertools.count()
    monkeypatch.setattr(empty, "empty_call_s", lambda _: float(next(made)))
    assert empty.own_empty_call_s(device) == statistics.fmean(range(FIRST_SERIES))
    assert empty.own_empty_call_s(device) == statistics.fmean(range(FIRST_SERIES + MORE_SERIES))
    for _ in range(LATEST_SERIES):
        latest = empty.own_empty_call_s(device)
    end = next(made)
    assert latest == statistics.fmean(range(end - LATEST_SERIES, end))
    assert empty.own_empty_call_s(open_device(DeviceKind.HOST)) > end  # another device begins anew
    empty.forget_own(device)
    begin = next(made) + 1
    assert empty.own_empty_call_s(device) == statistics.fmean(range(begin, begin + FIRST_SERIES))


def test_what_can_not_be_is_not_taken_off() -> None:
    assert beyond_s(3.2e-6, 3.0e-6) == pytest.approx(0.2e-6)
    assert beyond_s(3.0e-6, 3.2e-6) == pytest.approx(-0.2e-6)
    assert beyond_s(3.0e-6 + 1.01 * MOST_S, 3.0e-6) == 0.0
    assert MOST_S <= PROCESS_BIAS_S, "what audits gain a submission by slowing its empty calls must be told as noise"
    assert beyond_s(None, 3.0e-6) == beyond_s(3.0e-6, None) == 0.0


@pytest.mark.gpu
def test_empty_calls_repeat_on_a_gpu() -> None:
    device = open_device(DeviceKind.CUDA)
    first, second = empty_call_s(device), empty_call_s(device)
    assert 1e-6 < first < 20e-6
    assert abs(first - second) < MOST_S


def test_the_table_tells_what_empty_calls_take_away() -> None:
    """Two processes, the second 0.2 us slower for everything, and a call that scatters besides."""
    rows = [
        {"batch": 0, "empty_s": empty, "calls": {"even": [5e-6 + empty] * 3, "other": [9e-6 + empty, 9.2e-6 + empty]}}
        for empty in (3.0e-6, 3.2e-6)
    ]
    text = document(rows, "a GPU")
    assert "| even | 8.10 | 0.20 | 0.000 | 0.100 | 0.000 |" in text
    assert "| other | 12.20 | 0.20 | 0.100 | 0.100 | 0.000 |" in text
    assert "2 processes, 1 batches" in text

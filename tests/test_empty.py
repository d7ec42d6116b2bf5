"""Empty calls: made like any other, and what two processes differ by."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from harness import empty
from harness.devices import CallTime, open_device
from harness.devices.host import HostDevice
from harness.empty import (
    APART_S,
    CALLS,
    FIRST_SERIES,
    LATEST_SERIES,
    MORE_SERIES,
    MOST_S,
    WARM,
    beyond_s,
    empty_call_s,
    nearest_lane,
)
from harness.model import DeviceKind
from harness.quiet import PROCESS_BIAS_S
from tests.benchmarks.bench_processes import document


def test_each_kind_of_place_in_the_queue_comes_as_often() -> None:
    """`CudaDevice.time_cold` makes a launch more before every other call."""
    assert CALLS % 2 == WARM % 2 == 0


def test_an_empty_call_takes_some_time_on_any_device() -> None:
    assert 0.0 < empty_call_s(open_device(DeviceKind.HOST)) < 1e-2


class Device(HostDevice):
    """A host device with several lanes, of which the current one is noted."""

    lanes = (0, 5, 9)

    def __init__(self) -> None:
        super().__init__()
        self.now = 0

    @contextmanager
    def lane(self, number: int) -> Iterator[None]:
        self.now = number
        yield
        self.now = 0


def test_an_empty_call_goes_by_way_of_its_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    device, seen = Device(), set()

    def noted(call: Callable[[], object], after: Callable[[object], None]) -> CallTime:
        seen.add(device.now)
        return CallTime(device_s=1e-6, window_s=1e-6)

    monkeypatch.setattr(device, "time_cold", noted)
    assert empty_call_s(device, 5) == pytest.approx(1e-6)
    assert seen == {5}


def made_up(monkeypatch: pytest.MonkeyPatch, by_lane: Mapping[int, float]) -> list[int]:
    """Series that take what is given for their lane, one nanosecond more each time; the lanes that were asked."""
    asked: list[int] = []

    def series(device: object, lane: int) -> float:
        asked.append(lane)
        return by_lane[lane] + 1e-9 * asked.count(lane)

    monkeypatch.setattr(empty, "empty_call_s", series)
    return asked


def test_the_referees_own_are_those_of_two_kinds_of_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = made_up(monkeypatch, {0: 9.0e-6, 5: 8.9e-6, 9: 8.5e-6})
    device = Device()
    own = empty.own_empty_calls_s(device)
    assert own == pytest.approx({0: 9.0025e-6, 9: 8.5025e-6}), "the first series chose them, two more count"
    assert asked == [0, 5, 9] + [0, 9] * FIRST_SERIES
    latest = [empty.own_empty_calls_s(device) for _ in range(2 * LATEST_SERIES)][-1]
    last = 1 + FIRST_SERIES + MORE_SERIES * 2 * LATEST_SERIES
    assert latest[0] == pytest.approx(9.0e-6 + 1e-9 * statistics.fmean(range(last - LATEST_SERIES + 1, last + 1)))
    del asked[:]
    empty.forget_own(device)
    assert empty.own_empty_calls_s(device)[0] == pytest.approx(9.0e-6 + 1e-9 * statistics.fmean(range(1, 3)))
    assert asked == [0, 9] * FIRST_SERIES, "which lanes differ stays known"


def test_lanes_that_are_alike_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, {0: 9.0e-6, 5: 9.0e-6 + 0.9 * APART_S, 9: 9.0e-6 - 0.9 * APART_S})
    assert list(empty.own_empty_calls_s(Device())) == [0]
    assert list(empty.own_empty_calls_s(open_device(DeviceKind.HOST))) == [0]


@pytest.mark.parametrize(
    ("contestant_s", "lane"), [(8.4e-6, 9), (8.7e-6, 9), (8.8e-6, 0), (9.9e-6, 0), (None, 0), (float("nan"), 0)]
)
def test_the_nearest_lane_is_taken(contestant_s: float | None, lane: int) -> None:
    assert nearest_lane(contestant_s, {0: 9.0e-6, 9: 8.5e-6}) == lane


def test_without_lanes_the_default_one_is_taken() -> None:
    assert nearest_lane(9e-6, {}) == 0


def test_what_can_not_be_is_not_taken_off() -> None:
    assert beyond_s(9.2e-6, 9.0e-6) == pytest.approx(0.2e-6)
    assert beyond_s(9.0e-6, 9.2e-6) == pytest.approx(-0.2e-6)
    assert beyond_s(20e-6, 9.0e-6) == MOST_S
    assert beyond_s(9.0e-6, 20e-6) == -MOST_S
    assert MOST_S <= PROCESS_BIAS_S, "what audits gain a submission by slowing its empty calls must be told as noise"
    assert beyond_s(None, 3.0e-6) == beyond_s(3.0e-6, None) == 0.0


@pytest.mark.gpu
def test_empty_calls_repeat_on_a_gpu() -> None:
    device = open_device(DeviceKind.CUDA)
    for lane in device.lanes:
        first, second = empty_call_s(device, lane), empty_call_s(device, lane)
        assert 1e-6 < first < 20e-6
        assert abs(beyond_s(first, second)) < MOST_S


def test_the_table_tells_what_empty_calls_take_away() -> None:
    """Two processes, the second 0.15 us slower for whatever it does."""
    rows = [
        {"batch": 0, "empty_calls_s": [4e-6 + slower, 3.8e-6], "calls": {"even": [5e-6 + slower] * 3}}
        for slower in (0.0, 0.15e-6)
    ]
    text = document(rows, "a GPU")
    assert "| even | 5.08 | 0.15 | 0.000 | 0.075 | 0.000 |" in text
    assert "4.00 3.80; 4.15 3.80." in text
    assert "2 processes, 1 batches" in text

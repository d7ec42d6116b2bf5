"""Empty calls: made like any other, and what two processes differ by."""

from __future__ import annotations

import gc
import statistics
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest
import torch

from harness.core.choices import DeviceKind
from harness.devices import empty_kernel
from harness.devices.device import CallTime, open_device
from harness.devices.empty_kernel import (
    CALLS,
    FIRST_SERIES,
    HALF_STEP_S,
    LATEST_SERIES,
    MORE_SERIES,
    MOST_S,
    WARM,
    empty_calls,
    many_launches_s,
)
from harness.devices.host import HostDevice
from harness.protocol.messages import EmptyTimed
from harness.referee.timing.reference_timing import PROCESS_BIAS_S
from tests.benchmarks.bench_processes import document, left_over_s


def test_each_kind_of_place_in_the_queue_comes_as_often() -> None:
    """`CudaDevice.time_cold` makes a launch more before every other call."""
    assert CALLS % 2 == WARM % 2 == 0


def test_empty_calls_take_some_time_on_any_device() -> None:
    timed = empty_calls(open_device(DeviceKind.HOST))
    assert 0.0 < timed.few_s < 1e-2
    assert 0.0 < timed.many_s < 1e-2


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


def test_empty_calls_go_by_way_of_their_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    device, seen = Device(), set()

    def noted(call: Callable[[], object], after: Callable[[object], None]) -> CallTime:
        seen.add(device.now)
        return CallTime(device_s=1e-6, window_s=1e-6)

    monkeypatch.setattr(device, "time_cold", noted)
    timed = empty_calls(device, 5)
    assert (timed.few_s, timed.many_s) == pytest.approx((1e-6, 1e-6))
    assert seen == {5}
    assert device.now == 0, "what comes next goes its usual way"
    assert many_launches_s(device, 9) == pytest.approx(1e-6)
    assert seen == {5, 9}


def test_few_launches_and_many_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A microsecond for each launch, by a device that counts them."""
    device, launches = Device(), 0
    zero = torch.Tensor.zero_

    def counted(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal launches
        launches += 1
        return zero(tensor)

    def noted(call: Callable[[], object], after: Callable[[object], None]) -> CallTime:
        before = launches
        call()
        return CallTime(device_s=(launches - before) * 1e-6, window_s=1e-3)

    monkeypatch.setattr(torch.Tensor, "zero_", counted)
    monkeypatch.setattr(device, "time_cold", noted)
    timed = empty_calls(device)
    assert (timed.few_s, timed.many_s) == pytest.approx((1.5e-6, 4e-6))
    assert many_launches_s(device, 0) == pytest.approx(4e-6)


def took(few_us: float, many_us: float) -> EmptyTimed:
    return EmptyTimed(few_s=few_us * 1e-6, many_s=many_us * 1e-6)


def made_up(monkeypatch: pytest.MonkeyPatch, many_us: Mapping[int, float]) -> list[int]:
    """Series that take what is given for their lane, one nanosecond more each time; the lanes that were asked."""
    asked: list[int] = []

    def series(device: object, lane: int) -> EmptyTimed:
        asked.append(lane)
        return took(4.0, many_us[lane] + 1e-3 * asked.count(lane))

    monkeypatch.setattr(empty_kernel, "empty_calls", series)
    monkeypatch.setattr(empty_kernel, "many_launches_s", lambda device, lane: series(device, lane).many_s)
    return asked


def test_the_referees_own_are_those_of_two_kinds_of_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = made_up(monkeypatch, {0: 9.0, 5: 8.9, 9: 8.5})
    device = Device()
    held = empty_kernel.of(device)
    own = {lane: timed.many_s for lane, timed in held.own().items()}
    assert own == pytest.approx({0: 9.0025e-6, 9: 8.5025e-6}), "the first series chose them, two more count"
    assert asked == [0, 5, 9] + [0] * FIRST_SERIES + [9] * FIRST_SERIES
    latest = [held.own() for _ in range(2 * LATEST_SERIES)][-1]
    last = 1 + FIRST_SERIES + MORE_SERIES * 2 * LATEST_SERIES
    expected_s = 9.0e-6 + 1e-9 * statistics.fmean(range(last - LATEST_SERIES + 1, last + 1))
    assert latest[0].many_s == pytest.approx(expected_s)
    del asked[:]
    held.forget()
    assert held.own()[0].many_s == pytest.approx(9.0e-6 + 1e-9 * statistics.fmean(range(1, 3)))
    assert asked == [0] * FIRST_SERIES + [9] * FIRST_SERIES, "which lanes differ stays known"


def test_lanes_that_are_alike_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, {0: 9.0, 5: 9.0 + 0.9e6 * HALF_STEP_S, 9: 9.0 - 0.9e6 * HALF_STEP_S})
    for device in (Device(), open_device(DeviceKind.HOST)):
        assert list(empty_kernel.of(device).own()) == [0]


def test_one_process_has_one_collection_a_device() -> None:
    device = Device()
    assert empty_kernel.of(device) is empty_kernel.of(device)
    assert empty_kernel.of(device) is not empty_kernel.of(Device())


def test_what_is_kept_of_a_device_does_not_keep_it() -> None:
    """A GPU's has its cache flush: two thirds of a gigabyte."""
    device = open_device(DeviceKind.HOST)
    empty_kernel.of(device).own()
    left = weakref.ref(device)
    del device
    gc.collect()
    assert left() is None


LANES = {0: took(4.2, 9.2), 9: took(4.0, 8.7)}


@pytest.mark.parametrize(("many_us", "lane"), [(8.5, 9), (8.9, 9), (9.0, 0), (9.7, 0)])
def test_the_lane_of_the_same_kind_is_taken(many_us: float, lane: int) -> None:
    """Whatever the calls of few launches say, in one contestant they are noise."""
    held = empty_kernel.EmptyCalls(Device())
    assert held.compare(took(4.4, many_us), LANES, one_queue=True).lane == lane


def test_what_contestants_of_the_lanes_kind_take_in_the_mean_is_taken_off() -> None:
    held = empty_kernel.EmptyCalls(Device())
    found = [held.compare(took(4.2 + own, 9.2), LANES, one_queue=True).taken_off_s for own in (-0.1, -0.06, -0.02)]
    assert found == pytest.approx([-0.1e-6, -0.08e-6, -0.06e-6])
    last = held.compare(took(4.0 - 0.06, 8.7), LANES, one_queue=True)
    assert last.lane == 9
    assert last.taken_off_s == pytest.approx(-0.06e-6), "of the other lane too"
    assert last.evidence["contestants"] == 4
    assert held.knows(one_queue=True)
    assert not held.knows(one_queue=False)
    other = held.compare(took(4.3, 9.2), LANES, one_queue=False)
    assert other.taken_off_s == pytest.approx(0.1e-6), "contexts with more queues are compared among themselves"


def test_a_contestant_of_neither_kind_is_compared_alone_and_does_not_count() -> None:
    held = empty_kernel.EmptyCalls(Device())
    held.compare(took(4.1, 9.2), LANES, one_queue=True)
    assert held.compare(took(4.36, 9.65), LANES, one_queue=True).taken_off_s == pytest.approx(0.16e-6)
    assert held.compare(took(4.2, 9.2), LANES, one_queue=True).taken_off_s == pytest.approx(-0.05e-6)


@pytest.mark.parametrize("beyond_us", [0.9, -0.9])
def test_no_more_is_taken_off_than_the_noise_floor(beyond_us: float) -> None:
    found = empty_kernel.EmptyCalls(Device()).compare(
        took(4.2 + beyond_us, 9.2 + beyond_us), {0: LANES[0]}, one_queue=True
    )
    assert abs(found.taken_off_s) == MOST_S
    assert MOST_S <= PROCESS_BIAS_S, "what audits gain a submission by slowing its empty calls must be told as noise"


def test_a_contestant_whose_short_calls_were_slowed_moves_the_mean_by_its_share_of_the_most() -> None:
    """Solutions of other authors come after it."""
    held = empty_kernel.EmptyCalls(Device())
    for _ in range(9):
        held.compare(took(4.2, 9.2), LANES, one_queue=True)
    assert held.compare(took(4.2 + 50.0, 9.3), LANES, one_queue=True).taken_off_s == pytest.approx(MOST_S / 10)
    assert held.compare(took(4.2, 9.2), LANES, one_queue=True).taken_off_s == pytest.approx(MOST_S / 11)


@pytest.mark.parametrize("beyond_us", [2.0, 500.0])
def test_a_contestant_whose_calls_were_slowed_beyond_all_kinds_gains_nothing(beyond_us: float) -> None:
    """Neither time, nor the slower lane for each launch of the reference."""
    held = empty_kernel.EmptyCalls(Device())
    found = held.compare(took(4.2 + beyond_us, 9.2 + beyond_us), LANES, one_queue=True)
    assert (found.lane, found.taken_off_s) == (9, 0.0)
    assert not held.knows(one_queue=True)


@pytest.mark.gpu
@pytest.mark.exclusive_gpu
def test_empty_calls_repeat_on_a_gpu() -> None:
    """The least of some series."""
    device = open_device(DeviceKind.CUDA)
    for lane in device.lanes:
        first, second = ([empty_calls(device, lane) for _ in range(4)] for _ in range(2))
        for name in ("few_s", "many_s"):
            own_s, again_s = (min(getattr(timed, name) for timed in made) for made in (first, second))
            assert 1e-6 < own_s < 40e-6
            assert abs(own_s - again_s) < MOST_S


def test_what_empty_calls_leave_over_is_about_a_line() -> None:
    assert left_over_s([5.1, 5.3, 5.2], [9.0, 9.4, 9.2]) == pytest.approx(0.0)
    assert left_over_s([5.0, 5.2, 5.0, 5.2], [9.0, 9.0, 9.4, 9.4]) == pytest.approx(0.1), "which tell nothing"


def test_the_table_tells_what_empty_calls_leave_over() -> None:
    """Four processes of two kinds, 0.2 us apart."""
    rows = [
        {
            "batch": 0,
            "empty_calls": [{"few_s": few, "many_s": many}, {"few_s": 4e-6, "many_s": 9e-6}],
            "calls": {"even": [5e-6 + slower] * 3},
        }
        for few, many, slower in ((4.1e-6, 9.2e-6, 0.2e-6), (4.0e-6, 8.7e-6, 0.0)) * 2
    ]
    text = document(rows, "a GPU")
    assert "| even | 5.10 | 0.20 | 0.000 | 0.100 | 0.000 |" in text
    assert "9.20 9.00; 8.70 9.00; 9.20 9.00; 8.70 9.00." in text
    assert "4.10, 4.00, 4.10, 4.00." in text
    assert "4 processes, 1 batches" in text

"""The rate of a GPU's processors over a burst: what stamps say, and that a GPU's are right."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from harness.core.choices import DeviceKind
from harness.devices import sm_clock
from harness.devices.device import open_device
from harness.devices.host import HostDevice


def stamp(*rows: tuple[int, int, int]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def test_the_median_processor_decides() -> None:
    before = stamp((0, 100, 1000), (1, 5000, 1000), (2, 70, 1001))
    after = stamp((2, 70 + 1980, 2001), (0, 100 + 1980, 2000), (1, 5000 + 900, 2000))
    assert sm_clock.rate_hz(before, after) == pytest.approx(1.98e9)


def test_of_several_blocks_of_a_processor_the_first_is_taken_at_the_beginning() -> None:
    before, after = stamp((0, 0, 0), (0, 500, 1000)), stamp((0, 2000, 1000))
    assert sm_clock.rate_hz(before, after) == pytest.approx(2e9)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (stamp((0, 0, 0)), stamp((1, 100, 100))),  # no processor is in both
        (stamp((0, 0, 100)), stamp((0, 100, 100))),  # no time went by
        (stamp((0, 100, 0)), stamp((0, 50, 100))),  # a counter that was set back
        (stamp(), stamp()),
    ],
)
def test_what_can_not_be_known_is_none(
    before: np.ndarray[tuple[int, int], np.dtype[np.int64]], after: np.ndarray[tuple[int, int], np.dtype[np.int64]]
) -> None:
    assert sm_clock.rate_hz(before, after) is None


def test_on_the_host_device_nothing_is_known() -> None:
    device = HostDevice()
    held = sm_clock.of(device)
    held.begin()
    assert held.end() is None
    assert sm_clock.of(device) is held


@pytest.mark.gpu
def test_a_gpus_rate_is_the_one_that_its_driver_allows() -> None:
    import pynvml

    device = open_device(DeviceKind.CUDA)
    held = sm_clock.of(device)
    work = torch.randn(4096, 4096, device=device.torch_device)
    held.begin()
    for _ in range(8):
        work @ work
    time.sleep(0.01)  # its counters go on while it is idle
    busy_hz = held.end()
    assert busy_hz is not None
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{str(device.uuid).removeprefix('GPU-')}")
    most_hz = 1e6 * pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)
    assert 0.3 * most_hz < busy_hz < 1.01 * most_hz
    assert held.end() is None, "a burst ends once"

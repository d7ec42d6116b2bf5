"""Measure the multiprocessors' clock rate over a burst, by their cycle counters.

Trusted side: the referee reads the counters before and after a burst, so no value is a claim. NVML reports the clock at
one moment; between two bursts that is the clock of an idle GPU. On an H200 NVML reported 1980 MHz, while tensor-core
products ran at 1870 MHz and float32 products sometimes at 1965 MHz. The rate is evidence and decides nothing: whether a
lower clock costs time depends on whether the code computes or waits.
"""

from __future__ import annotations

import weakref

import numpy as np
import torch

from harness.core.choices import DeviceKind
from harness.devices import nvrtc
from harness.devices.device import Device

SOURCE = """
extern "C" __global__ void stamp(long long *out)
{
    if (threadIdx.x != 0)
        return;
    unsigned int processor;
    long long now;
    const long long cycles = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(processor));
    long long *own = out + 3ll * blockIdx.x;
    own[0] = processor;
    own[1] = cycles;
    own[2] = now;
}
"""

BLOCKS_A_PROCESSOR = 4
"""Blocks of a stamp for each multiprocessor, so that nearly all of them run one."""


class Cycles:
    """Cycle counters of one device; unknown on the host device and without NVRTC.

    Not safe for threads.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._launch: nvrtc.Launch | None = None
        self._stamps: torch.Tensor | None = None
        self._begun = False
        if device.kind is DeviceKind.CUDA:
            index = device.torch_device.index or 0
            loaded = nvrtc.load(SOURCE, ("stamp",), index)
            if loaded is not None:
                blocks = BLOCKS_A_PROCESSOR * torch.cuda.get_device_properties(index).multi_processor_count
                self._launch = loaded[0]
                self._stamps = torch.zeros((2, blocks, 3), dtype=torch.int64, device=device.torch_device)

    def begin(self) -> None:
        """Read the counters before a burst; returns when the device is idle."""
        self._begun = self._stamp(0)

    def end(self) -> float | None:
        """Return the median clock rate in Hz since `begin`; None if unknown.

        The work of the burst must be complete.
        """
        if not self._begun or not self._stamp(1):
            return None
        self._begun = False
        assert self._stamps is not None
        return rate_hz(*self._stamps.cpu().numpy())

    def _stamp(self, which: int) -> bool:
        if self._launch is None or self._stamps is None:
            return False
        stamps = self._stamps[which]
        self._launch((len(stamps), 1, 1), 32, [nvrtc.pointer(stamps)])
        self._device.synchronize()
        return True


def rate_hz(
    before: np.ndarray[tuple[int, int], np.dtype[np.int64]], after: np.ndarray[tuple[int, int], np.dtype[np.int64]]
) -> float | None:
    """Compute the median clock rate between two stamps.

    Args:
        before: Rows of (multiprocessor, its cycle count, nanoseconds).
        after: The same, later.

    Returns:
        Cycles per second; None if no multiprocessor is in both stamps or no time has passed.
    """
    # The first row of each multiprocessor counts; `np.unique` returns its index.
    processors, first = np.unique(before[:, 0], return_index=True)
    at = np.minimum(np.searchsorted(processors, after[:, 0]), len(processors) - 1)
    went = after[:, 1:] - before[first[at], 1:]
    cycles, nanoseconds = went[(processors[at] == after[:, 0]) & (went > 0).all(axis=1)].T
    return float(np.median(cycles / nanoseconds)) * 1e9 if len(cycles) else None


_held: weakref.WeakKeyDictionary[Device, Cycles] = weakref.WeakKeyDictionary()


def of(device: Device) -> Cycles:
    """Return the cycle counters of `device`, always the same object."""
    if device not in _held:
        _held[device] = Cycles(device)
    return _held[device]

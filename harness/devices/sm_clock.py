"""How fast a GPU's processors ran over a burst: their cycle counters, held against the GPU's own nanoseconds.

Trusted side: the referee stamps before and after a burst, a solution's too, so that nothing of it is a claim. Imports
`devices` and `nvrtc`. NVML says what the clock is at one moment, which between two bursts is that of an idle GPU: on an
H200 it said 1980 MHz there while products on tensor cores ran at 1870, and those in float32 at 1965 now and then. It is
evidence and decides nothing: how much of a rate is lost to a burst depends on whether its code computes or waits.
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
"""Blocks of a stamp for each processor of the GPU, so that hardly one is left without."""


class Cycles:
    """One device's counters. Where there are none, on the host device or without a compiler at run time, nothing is
    known. Not safe for threads.
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
        """A burst is about to begin; returns when the device is idle."""
        self._begun = self._stamp(0)

    def end(self) -> float | None:
        """The rate since `begin`, cycles a second of the median processor; None where it is not known. What the burst
        submitted must be over.
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
    """Cycles a second between two stamps, of the median processor. Rows are (processor, its cycles, nanoseconds); None
    where no processor is in both, or no time went by.
    """
    # Of each processor the first row counts, in which `np.unique` has it.
    processors, first = np.unique(before[:, 0], return_index=True)
    at = np.minimum(np.searchsorted(processors, after[:, 0]), len(processors) - 1)
    went = after[:, 1:] - before[first[at], 1:]
    cycles, nanoseconds = went[(processors[at] == after[:, 0]) & (went > 0).all(axis=1)].T
    return float(np.median(cycles / nanoseconds)) * 1e9 if len(cycles) else None


_held: weakref.WeakKeyDictionary[Device, Cycles] = weakref.WeakKeyDictionary()


def of(device: Device) -> Cycles:
    """This device's, always the same."""
    if device not in _held:
        _held[device] = Cycles(device)
    return _held[device]

"""Detect whether another process runs kernels on the GPU, by a probe kernel.

Trusted side. NVML lists the processes that hold memory, not those that run kernels, and samples the load only six times
a second. A GPU that serves two processes gives each slices of about 2 ms in turn. A kernel that only reads the clock
for several slices sees the others' slices as gaps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from harness.devices import nvrtc

PROBE_NS = 6_000_000
"""Duration of one probe in nanoseconds: three slices of the GPU's round robin, so that every active process gets one.
"""

GAP_NS = 100_000
"""Gap between two clock readings, in nanoseconds, that only another process explains; readings are at most 1 us apart.
"""

_SOURCE = """
extern "C" __global__ void look(long long duration, long long *found)
{
    long long first, before, now, widest = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(first));
    before = first;
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        widest = now - before > widest ? now - before : widest;
        before = now;
    } while (now - first < duration);
    *found = widest;
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingProbe:
    """Result of the probes.

    Attributes:
        alone: Whether no other process ran kernels during the last probe.
        waited_s: Time until the result, in seconds.
        widest_gap_s: Widest gap of the last probe, in seconds.
    """

    alone: bool
    waited_s: float
    widest_gap_s: float


def widest_gap_s(device_index: int) -> float | None:
    """Probe once: the longest time without service for this process, in seconds.

    Synchronises the device. Returns None if no kernel can be compiled.
    """
    kernels = nvrtc.load(_SOURCE, ("look",), device_index)
    if kernels is None:
        return None
    found = torch.zeros((), dtype=torch.int64, device=torch.device("cuda", device_index))
    kernels[0]((1, 1, 1), 1, [nvrtc.integer(PROBE_NS), nvrtc.pointer(found)])
    return int(found) * 1e-9


def wait_until_alone(device_index: int, limit_s: float) -> SharingProbe:
    """Probe until no other process runs kernels on the GPU, at most `limit_s` seconds."""
    begin = time.perf_counter()
    while True:
        gap_s = widest_gap_s(device_index)
        waited_s = time.perf_counter() - begin
        if gap_s is None or gap_s < GAP_NS * 1e-9:
            return SharingProbe(alone=True, waited_s=waited_s, widest_gap_s=gap_s or 0.0)
        if waited_s > limit_s:
            return SharingProbe(alone=False, waited_s=waited_s, widest_gap_s=gap_s)

"""Is this process alone on the GPU at this moment? Asked of the GPU itself, not of the driver's books.

Imports `nvrtc` and torch. Trusted side. NVML tells which processes hold memory, not which have work, and samples how
busy the GPU is six times a second. But where two processes have work, the GPU gives each of them slices of about two
milliseconds in turn: a kernel that does nothing but read the clock for several slices sees the others' as gaps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from harness.devices import nvrtc

PROBE_NS = 6_000_000
"""How long one look takes: three slices of the GPU's round robin, so that whoever has work gets one."""

GAP_NS = 100_000
"""A pause in the clock's readings that only another process explains; readings are a microsecond apart or less."""

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
    """What looking told: `alone` at the end, after `waited_s`; `widest_gap_s` of the last look."""

    alone: bool
    waited_s: float
    widest_gap_s: float


def widest_gap_s(device_index: int) -> float | None:
    """Look once: the longest time in which the GPU did not run this process although it had work; None where no kernel
    can be had. Synchronises.
    """
    kernels = nvrtc.load(_SOURCE, ("look",), device_index)
    if kernels is None:
        return None
    found = torch.zeros((), dtype=torch.int64, device=torch.device("cuda", device_index))
    kernels[0]((1, 1, 1), 1, [nvrtc.integer(PROBE_NS), nvrtc.pointer(found)])
    return int(found) * 1e-9


def wait_until_alone(device_index: int, limit_s: float) -> SharingProbe:
    """Look until no other process has work on the GPU, for `limit_s` at most."""
    begin = time.perf_counter()
    while True:
        gap_s = widest_gap_s(device_index)
        waited_s = time.perf_counter() - begin
        if gap_s is None or gap_s < GAP_NS * 1e-9:
            return SharingProbe(alone=True, waited_s=waited_s, widest_gap_s=gap_s or 0.0)
        if waited_s > limit_s:
            return SharingProbe(alone=False, waited_s=waited_s, widest_gap_s=gap_s)

"""Theoretical occupancy of a kernel, and the resource that limits it.

The rules come from NVIDIA's CUDA C++ Programming Guide ("Hardware Multithreading", "Compute Capabilities") and its
occupancy calculator for compute capability 7.0 and later:

* Registers are allocated to a warp in units of 256; the number of resident warps is a multiple of four.
* A block takes its shared memory plus a reserved part, in units of 128 bytes (256 before 8.0).
* The scarcest resource, or the block limit of a multiprocessor, sets the number of resident blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.core.json_value import JsonObject

REGISTER_PORTION = 256
"""Allocation unit of registers for a warp."""

WARP_PORTION = 4
"""The warps that registers allow are a multiple of this: one for each of the multiprocessor's four partitions."""

RESIDENT_BLOCKS: Mapping[tuple[int, int], int] = {
    (7, 0): 32,
    (7, 2): 32,
    (7, 5): 16,
    (8, 0): 32,
    (8, 6): 16,
    (8, 7): 16,
    (8, 9): 24,
    (9, 0): 32,
    (10, 0): 32,
    (10, 3): 32,
    (12, 0): 24,
    (12, 1): 24,
}
"""Most resident blocks of a multiprocessor by compute capability, for drivers that do not report it."""


_AT_LEAST_ONE = ("multiprocessors", "threads", "blocks", "registers", "shared_bytes", "shared_portion_bytes", "warp")


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiprocessorLimits(JsonObject):
    """Resources of one multiprocessor, and the number of multiprocessors.

    Sizes are in bytes. Each resident block takes `reserved_shared_bytes` besides its own shared memory.
    """

    multiprocessors: int
    threads: int
    blocks: int
    registers: int
    shared_bytes: int
    reserved_shared_bytes: int
    shared_portion_bytes: int = 128
    warp: int = 32

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} of a multiprocessor must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy(JsonObject):
    """Occupancy of a kernel.

    Attributes:
        share: Resident warps divided by the most that a multiprocessor holds.
        blocks: Resident blocks of a multiprocessor.
        limiter: `threads`, `blocks`, `registers` or `shared memory`.
    """

    share: float
    blocks: int
    limiter: str

    def waves(self, blocks: int, limits: MultiprocessorLimits) -> float:
        """Return how many times a grid of `blocks` blocks fills the whole device."""
        return blocks / (self.blocks * limits.multiprocessors)


def occupancy(limits: MultiprocessorLimits, *, threads: int, registers: int, shared_bytes: int) -> Occupancy | None:
    """Compute the theoretical occupancy.

    Args:
        limits: Resources of a multiprocessor.
        threads: Threads of a block.
        registers: Registers of a thread.
        shared_bytes: Static plus dynamic shared memory of a block.

    Returns:
        The occupancy; None if no block fits or the numbers cannot be a launch.
    """
    if threads < 1:
        return None
    warps = -(-threads // limits.warp)
    bounds = {"threads": limits.threads // limits.warp // warps, "blocks": limits.blocks}
    if registers > 0:
        a_warp = -(-registers * limits.warp // REGISTER_PORTION) * REGISTER_PORTION
        resident_warps = limits.registers // a_warp // WARP_PORTION * WARP_PORTION
        bounds["registers"] = resident_warps // warps
    taken = shared_bytes + limits.reserved_shared_bytes
    if taken > 0:
        portion = limits.shared_portion_bytes
        bounds["shared memory"] = limits.shared_bytes // (-(-taken // portion) * portion)
    limiter = min(bounds, key=lambda name: bounds[name])
    blocks = bounds[limiter]
    if blocks < 1:
        return None
    return Occupancy(share=blocks * warps / (limits.threads // limits.warp), blocks=blocks, limiter=limiter)

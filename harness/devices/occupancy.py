"""Theoretical occupancy: how many of a multiprocessor's warps a kernel's resources allow, and what limits them.

Pure. The rules are those of NVIDIA's CUDA C++ Programming Guide ("Hardware Multithreading", "Compute Capabilities")
and of its occupancy calculator for compute capability 7.0 and later: a block takes its warps, registers in portions of
256 a warp with warps counted in multiples of four, and its shared memory plus what the system reserves for each block
in portions of 128 bytes (256 before 8.0); as many blocks are resident as the scarcest of these, and the most blocks
that a multiprocessor takes, allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

REGISTER_PORTION = 256
"""Registers are given to warps in multiples of this."""

WARP_PORTION = 4
"""Warps of a block take registers in multiples of this: one for each of the multiprocessor's four partitions."""

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
"""Most resident blocks a multiprocessor by compute capability, where the driver does not say."""


_AT_LEAST_ONE = ("multiprocessors", "threads", "blocks", "registers", "shared_bytes", "shared_portion_bytes", "warp")


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiprocessorLimits:
    """What one multiprocessor has. Sizes in bytes; `reserved_shared_bytes` is taken for each resident block."""

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
                raise ValueError(f"{name} of a multiprocessor is at least 1, not {getattr(self, name)}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> MultiprocessorLimits:
        return cls(**value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """`share` of the warps that a multiprocessor can hold, `blocks` resident at once, and what keeps it from more:
    `threads`, `blocks`, `registers` or `shared memory`.
    """

    share: float
    blocks: int
    limiter: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def waves(self, blocks: int, limits: MultiprocessorLimits) -> float:
        """How many times the whole device is filled by a grid of so many blocks."""
        return blocks / (self.blocks * limits.multiprocessors)


def occupancy(limits: MultiprocessorLimits, *, threads: int, registers: int, shared_bytes: int) -> Occupancy | None:
    """For a block of `threads` threads, `registers` a thread and `shared_bytes` of static and dynamic shared memory.

    None where not even one block fits, or the numbers are of no launch.
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

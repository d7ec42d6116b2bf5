"""Theoretical occupancy against NVIDIA's calculator."""

from __future__ import annotations

import pytest

from harness.devices.occupancy import MultiprocessorLimits, occupancy

HOPPER = MultiprocessorLimits(
    multiprocessors=132, threads=2048, blocks=32, registers=65536, shared_bytes=233472, reserved_shared_bytes=1024
)
AMPERE_CONSUMER = MultiprocessorLimits(
    multiprocessors=84, threads=1536, blocks=16, registers=65536, shared_bytes=102400, reserved_shared_bytes=1024
)


@pytest.mark.parametrize(
    ("limits", "threads", "registers", "shared_bytes", "blocks", "share", "limiter"),
    [
        (HOPPER, 256, 32, 0, 8, 1.0, "threads"),
        (HOPPER, 1024, 64, 0, 1, 0.5, "registers"),
        (HOPPER, 128, 255, 0, 2, 0.125, "registers"),
        (HOPPER, 256, 33, 0, 6, 0.75, "registers"),  # 33 are rounded up to 40
        (HOPPER, 192, 85, 0, 3, 18 / 64, "registers"),  # 20 warps' worth of registers hold three blocks of six
        (HOPPER, 32, 16, 0, 32, 0.5, "blocks"),
        (HOPPER, 256, 40, 49152, 4, 0.5, "shared memory"),
        (HOPPER, 128, 32, 232448, 1, 4 / 64, "shared memory"),  # the most a block may have: nothing is left over
        (HOPPER, 33, 8, 0, 32, 1.0, "threads"),  # a block of 33 threads takes two warps
        (AMPERE_CONSUMER, 64, 32, 0, 16, 32 / 48, "blocks"),
        (AMPERE_CONSUMER, 1024, 32, 0, 1, 32 / 48, "threads"),
    ],
)
def test_against_the_calculator(
    limits: MultiprocessorLimits,
    threads: int,
    registers: int,
    shared_bytes: int,
    blocks: int,
    share: float,
    limiter: str,
) -> None:
    found = occupancy(limits, threads=threads, registers=registers, shared_bytes=shared_bytes)
    assert found is not None
    assert (found.blocks, found.share, found.limiter) == (blocks, pytest.approx(share), limiter)


def test_what_does_not_fit_has_none() -> None:
    assert occupancy(HOPPER, threads=2048 + 32, registers=8, shared_bytes=0) is None
    assert occupancy(HOPPER, threads=1024, registers=255, shared_bytes=0) is None
    assert occupancy(HOPPER, threads=32, registers=8, shared_bytes=300_000) is None
    assert occupancy(HOPPER, threads=0, registers=8, shared_bytes=0) is None


def test_limits_survive_a_record_and_refuse_nonsense() -> None:
    assert MultiprocessorLimits.from_json(HOPPER.to_json()) == HOPPER
    with pytest.raises(ValueError, match="multiprocessors"):
        MultiprocessorLimits.from_json({**HOPPER.to_json(), "multiprocessors": 0})

"""Describe a profile in sentences.

Pure functions. Names of kernels come from untrusted code and go through `format.line`.
"""

from __future__ import annotations

from harness.protocol.kernel_names import short_name
from harness.report import format as show
from harness.runner.profile import ncu
from harness.runner.profile.running import Profile, ProfiledSide

BUSY = 0.6
"""A unit counts as busy from this share of its peak on; few kernels exceed 0.9."""

TENSOR_USED = 0.01

ALIKE = 0.03
"""Relative difference of two profiled calls of one program."""

WASTE = 1.2
"""Ratio of moved bytes to least bytes that is worth a sentence."""

NAME_WIDTH = 60


def in_words(profile: Profile) -> list[str]:
    """Return sentences about a profile; none if it has no numbers."""
    lines = _compared(profile)
    for side in (profile.solution, profile.reference):
        lines += _moved(side, profile.least_bytes) + _waits(side)
    return lines


def _compared(profile: Profile) -> list[str]:
    own, other = (side.census.get("device_s") for side in (profile.solution, profile.reference))
    if not own or not other:
        return []
    launches = [side.census.get("launches", 0) for side in (profile.solution, profile.reference)]
    how = f"{show.share(abs(own / other - 1))} {'less' if own < other else 'more'} than the reference"
    if abs(own / other - 1) < ALIKE:
        how = f"about as long as the reference ({show.duration(other)})"
    line = f"The solution takes {show.duration(own)}, {how}"
    if launches[0] != launches[1]:
        line += f", in {launches[0]} launch{'' if launches[0] == 1 else 'es'} instead of {launches[1]}"
    return [f"{line}. This is one profiled call; use harness eval to measure speedups."]


def _moved(side: ProfiledSide, least_bytes: int) -> list[str]:
    """Compare the bytes moved by all launches with the least bytes.

    All launches must have counters.
    """
    held = [launch for launch in side.counters if launch.read_bytes is not None and launch.written_bytes is not None]
    if not least_bytes or not held or len(held) < side.census.get("launches", 0):
        return []
    times = sum((launch.read_bytes or 0.0) + (launch.written_bytes or 0.0) for launch in held) / least_bytes
    if times < WASTE:
        return [f"The {side.title} moves little more than the least bytes ({show.digits(times, 2)} times)."]
    return [
        f"The {side.title} moves {show.digits(times, 2)} times the least bytes: keep data that is read again on chip."
    ]


def _waits(side: ProfiledSide) -> list[str]:
    """Say what limits the slowest launch, by its counters."""
    found = ncu.heaviest(side.counters, 1)
    if not found:
        return []
    (launch,) = found
    name = f"The {side.title}'s slowest kernel, {show.line(short_name(launch.name), NAME_WIDTH)},"
    memory, compute = launch.memory_share or 0.0, launch.compute_share or 0.0
    if max(memory, compute) >= BUSY:
        unit, share = ("memory", memory) if memory >= compute else ("the multiprocessors", compute)
        line = f"{name} keeps {unit} busy ({show.share(share)} of the peak)"
        if launch.tensor_share is not None and memory < compute:
            used = launch.tensor_share >= TENSOR_USED
            line += f", {'with' if used else 'without'} tensor cores"
        return [f"{line}."]
    line = f"{name} keeps neither memory ({show.share(memory)}) nor multiprocessors ({show.share(compute)}) busy"
    if launch.stalls:
        reason, _ = launch.stalls[0]
        line += f"; main stall reason: {ncu.STALLS.get(reason, show.line(reason, 40))}"
    return [f"{line}."]

"""A profile in sentences: how the two calls compare, what was moved beyond need, what heavy kernels wait for.

Pure: profile in, lines out. Names of kernels come from untrusted code and go through `format.line`.
"""

from __future__ import annotations

from harness.protocol.kernel_names import short_name
from harness.report import format as show
from harness.runner.profile import ncu
from harness.runner.profile.running import Profile, ProfiledSide

BUSY = 0.6
"""Share of a peak from which on a unit is called busy: few kernels get beyond 0.9."""

TENSOR_USED = 0.01

ALIKE = 0.03
"""Two profiled calls of one program differ by so much."""

WASTE = 1.2
"""Bytes moved over the least ones from which on it is worth saying."""

NAME_WIDTH = 60


def in_words(profile: Profile) -> list[str]:
    """What the figures say; nothing where there are none."""
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
    return [f"{line}. This is one profiled call: harness eval measures speedups."]


def _moved(side: ProfiledSide, least_bytes: int) -> list[str]:
    """How much more than the least bytes all launches moved; nothing where not all of them were counted."""
    held = [launch for launch in side.counters if launch.read_bytes is not None and launch.written_bytes is not None]
    if not least_bytes or not held or len(held) < side.census.get("launches", 0):
        return []
    times = sum((launch.read_bytes or 0.0) + (launch.written_bytes or 0.0) for launch in held) / least_bytes
    if times < WASTE:
        return [f"The {side.title} moves hardly more than the least bytes ({show.digits(times, 2)} times)."]
    return [f"The {side.title} moves {show.digits(times, 2)} times the least bytes: what is read again could be kept."]


def _waits(side: ProfiledSide) -> list[str]:
    """What keeps the heaviest launch from being faster, by its counters."""
    found = ncu.heaviest(side.counters, 1)
    if not found:
        return []
    (launch,) = found
    name = f"The {side.title}'s heaviest kernel, {show.line(short_name(launch.name), NAME_WIDTH)},"
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
        line += f"; stalled mostly: {ncu.STALLS.get(reason, show.line(reason, 40))}"
    return [f"{line}."]

"""Render a profile: totals, kernels and hardware counters of both sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.protocol.kernel_names import short_name
from harness.report import format as show
from harness.runner.profile import ncu
from harness.runner.profile.running import Profile, ProfiledSide

MAX_KERNELS = 12
MAX_COUNTED = 3
MAX_STALLS = 3
NAME_WIDTH, COUNTED_NAME_WIDTH = 60, 40

BUSY = 0.6
"""A unit counts as busy from this share of its peak on; few kernels exceed 0.9."""

TENSOR_USED = 0.01

ALIKE = 0.03
"""Relative difference of two profiled calls of one program."""

WASTE = 1.2
"""Ratio of moved bytes to least bytes that is worth a sentence."""


def lines_of(profile: Profile) -> list[str]:
    """Return all lines of the page."""
    lines = [f"{profile.problem}, workload {profile.workload}, on {profile.device}", *_limit(profile), ""]
    lines += _together(profile)
    for side in (profile.solution, profile.reference):
        lines += ["", *_kernels(side)]
    lines += _counters((profile.solution, profile.reference))
    words = _in_words(profile)
    return [*lines, "", "in words:", *(f"  {line}" for line in words)] if words else lines


def _limit(profile: Profile) -> list[str]:
    work = f"{show.count(profile.flops, 'flop')} and at least {show.size(profile.least_bytes)} of memory traffic"
    light = profile.speed_of_light
    if light is None:
        return [f"the problem needs {work}; no speed of light, because the peak rates of this GPU are unknown"]
    return [
        f"the problem needs {work}; speed of light: {show.duration(light['sol_time_s'])}, bound by {light['bound']}"
    ]


def _together(profile: Profile) -> list[str]:
    """Return a table of totals with the solution and the reference as columns."""
    sides = (profile.solution, profile.reference)
    rows = [["", "solution", "reference"]]
    if any(side.failure for side in sides):
        rows.append(["failed", *(show.line(side.failure or "no", NAME_WIDTH) for side in sides)])
    rows.append(["device time of one call", *(show.duration(side.census.get("device_s") or None) for side in sides)])
    light = profile.speed_of_light
    if light is not None:
        rows.append(["share of the speed of light", *(_fraction(side, light["sol_time_s"]) for side in sides)])
    rows.append(["kernel launches", *(str(side.census.get("launches", 0)) for side in sides)])
    for name in ("own", "library"):
        rows.append([f"share of {name} kernels", *(show.share(side.census.get(f"{name}_share")) for side in sides)])
    lines = _columns(rows)
    if profile.solution.labels:
        lines.append(f"labels: {', '.join(profile.solution.labels)}")
    return lines


def _fraction(side: ProfiledSide, sol_s: float) -> str:
    device_s = side.census.get("device_s")
    return show.share(sol_s / device_s) if device_s else show.ABSENT


def _kernels(side: ProfiledSide) -> list[str]:
    rows: Sequence[Mapping[str, Any]] = side.census.get("kernels", ())
    if lack := side.census.get("not_taken"):
        return [f"{side.title}: kernels are unknown: {show.line(lack, 200)}"]
    heads = "share", "time", "calls", "owner", "grid", "block", "registers", "shared", "spills", "occupancy", "kernel"
    table = [heads, *map(_kernel, rows[:MAX_KERNELS])]
    more = [f"and {len(rows) - MAX_KERNELS} more"] if len(rows) > MAX_KERNELS else []
    return [f"{side.title}:", *_columns(table), *more]


def _kernel(row: Mapping[str, Any]) -> list[str]:
    whose = str(row.get("library") or row.get("owner") or row["kind"])
    common = [show.share(row.get("share")), show.duration(row.get("total_s")), str(row["calls"]), whose]
    name = show.line(short_name(row["name"]), NAME_WIDTH)
    if row["kind"] != "kernel":
        return [*common, *[show.ABSENT] * 6, name]
    shared = row.get("static_shared_bytes", 0) + row.get("dynamic_shared_bytes", 0)
    return [
        *common,
        show.extents(row.get("grid")),
        show.extents(row.get("block")),
        str(row.get("registers", show.ABSENT)),
        show.size(shared),
        _spills(row),
        _occupancy(row.get("occupancy")),
        name,
    ]


def _spills(row: Mapping[str, Any]) -> str:
    """Format spills; for library kernels, only whether they use no local memory."""
    if "spill_stores_bytes" in row:
        spilled = row["spill_stores_bytes"] + row.get("spill_loads_bytes", 0)
        return show.size(spilled) if spilled else "none"
    return "none" if row.get("local_bytes") == 0 else show.ABSENT


def _occupancy(held: Mapping[str, Any] | None) -> str:
    return show.ABSENT if held is None else f"{show.share(held['share'])} ({held['limiter']})"


def _counters(sides: Sequence[ProfiledSide]) -> list[str]:
    """Return tables of the slowest launches of both sides, and stall reasons."""
    lacks = [side for side in sides if side.counters_lack is not None]
    lines = [f"{side.title}: no hardware counters: {show.line(side.counters_lack, 400)}" for side in lacks]
    heaviest = [ncu.heaviest(side.counters, MAX_COUNTED) for side in sides]
    reasons: list[str] = []
    for place in range(max(map(len, heaviest))):
        launches = [held[place] if place < len(held) else None for held in heaviest]
        rows = [[f"ncu, kernel {place + 1}" if place else "ncu, slowest kernel", *(side.title for side in sides)]]
        rows += [[name, *("" if one is None else cell(one) for one in launches)] for name, cell in FIGURES.items()]
        lines += ["", *_columns(rows)]
        reasons += [name for launch in launches if launch for name, _ in launch.stalls[:MAX_STALLS]]
    words = [f"  {name}: {ncu.STALLS.get(name, name)}" for name in dict.fromkeys(reasons)]
    lines += (
        ["", "stall reasons, with the average number of stalled warps per issued instruction:", *words] if words else []
    )
    return ["", *lines] if lacks else lines


FIGURES: Mapping[str, Callable[[ncu.Counters], str]] = {
    "  kernel": lambda launch: show.line(short_name(launch.name), COUNTED_NAME_WIDTH),
    "  time": lambda launch: show.duration(launch.time_s),
    "  memory bandwidth": lambda launch: _rate(launch.bytes_per_s),
    "  share of peak bandwidth": lambda launch: show.share(launch.memory_share),
    "  bytes read, written": lambda launch: f"{show.size(launch.read_bytes)}, {show.size(launch.written_bytes)}",
    "  L2 hit rate": lambda launch: show.share(launch.l2_hit_share),
    "  multiprocessors busy": lambda launch: show.share(launch.compute_share),
    "  tensor cores active": lambda launch: show.share(launch.tensor_share),
    "  achieved occupancy": lambda launch: show.share(launch.occupancy),
    "  first stall reason": lambda launch: _stall(launch, 0),
    "  second stall reason": lambda launch: _stall(launch, 1),
    "  third stall reason": lambda launch: _stall(launch, 2),
}
"""Rows of a launch with counters."""


def _stall(launch: ncu.Counters, place: int) -> str:
    if len(launch.stalls) <= place:
        return show.ABSENT
    name, warps = launch.stalls[place]
    return f"{name}, {show.digits(warps)} warps"


def _rate(bytes_per_s: float | None) -> str:
    return show.ABSENT if bytes_per_s is None else f"{show.digits(bytes_per_s / 1e12)} TB/s"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _in_words(profile: Profile) -> list[str]:
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
    """Compare the bytes of all launches, if all have counters, with the least bytes."""
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

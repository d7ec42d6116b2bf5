"""Describe which kernels use a call's device time, from the census."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harness.core.record import Record
from harness.protocol.kernel_names import short_name
from harness.report import format as show
from harness.results import evidence as read

DOMINANT = 0.9
"""If one kernel has at least this share of the device time, the others are not named."""

LOW_OCCUPANCY = 0.5
"""Below this theoretical occupancy, warps may be too few to hide memory latency."""

MANY_LAUNCHES = 4

SECOND_HELPING = 1.5
"""A grid of 1 to this many waves leaves most of the GPU idle during its last wave."""

LIMITS: Mapping[str, str] = {
    "registers": "registers limit",
    "shared memory": "shared memory limits",
    "blocks": "the maximum number of blocks limits",
    "threads": "the maximum number of threads limits",
}

REMEDIES: Mapping[str, str] = {
    "registers": "use fewer registers per thread (smaller tiles, __launch_bounds__)",
    "shared memory": "use less shared memory per block",
    "blocks": "use larger blocks",
    "threads": "use a block size that divides the multiprocessor's maximum number of threads",
}


def sentences(record: Record, *, near_limit: bool = False) -> list[str]:
    """Return sentences about the census; `near_limit` omits those about occupancy."""
    census = read.mapping(record.evidence, "census")
    rows = [row for row in read.rows(census, "kernels") if (read.number(row, "share") or 0.0) > 0.0]
    if not rows:
        return _without_times(census)
    heaviest = max(rows, key=lambda row: read.number(row, "share") or 0.0)
    share = read.number(heaviest, "share") or 0.0
    lines = [f"{_sized(share)} of the device time goes to {_named(heaviest)}{_shape(heaviest)}."]
    if share < DOMINANT:
        others = sorted(rows, key=lambda row: -(read.number(row, "share") or 0.0))[1:3]
        named = [f"{_named(row)} ({show.share(read.number(row, 'share'))})" for row in others]
        lines.append(f"Next: {' and '.join(named)}.")
    lines += _whose(census)
    launches = read.whole(census, "launches") or 0
    if launches >= MANY_LAUNCHES:
        lines.append(f"A call launches {launches} kernels: fuse them, since each launch costs some microseconds.")
    return lines + _spills(heaviest) + ([] if near_limit else _resources(heaviest))


def _without_times(census: Mapping[str, Any]) -> list[str]:
    rows = [row for row in read.rows(census, "kernels") if read.text(row, "name") and read.whole(row, "calls")]
    launched = [f"{show.line(short_name(row['name']), 80)} ({row['calls']}x)" for row in rows]
    return [f"Kernels that ran, with their number of launches: {', '.join(launched[:8])}."] if launched else []


def _sized(share: float) -> str:
    return "All" if share > 0.995 else f"Most ({show.share(share)})" if share >= 0.5 else show.share(share)


def _named(row: Mapping[str, Any]) -> str:
    name = show.line(short_name(str(row.get("name", "a kernel"))), 80)
    library = read.text(row, "library")
    if library:
        return f"{name} ({show.line(library, 40)}'s)"
    return f"{name} (a copy)" if read.text(row, "kind") == "copy" else name


def _shape(row: Mapping[str, Any]) -> str:
    grid, block = (_product(row.get(key)) for key in ("grid", "block"))
    return f", {grid} blocks of {block} threads" if grid and block else ""


def _product(extents: Any) -> int | None:
    if not isinstance(extents, list | tuple) or any(type(extent) is not int for extent in extents):
        return None
    return math.prod(extents) if extents else None


def _whose(census: Mapping[str, Any]) -> list[str]:
    own, library = read.number(census, "own_share"), read.number(census, "library_share")
    if own is None or library is None or library < 0.01:
        return []
    return [f"Your own kernels take {show.share(own)} of the time, those of libraries {show.share(library)}."]


def _resources(row: Mapping[str, Any]) -> list[str]:
    """Describe how much of the GPU the slowest kernel leaves unused."""
    held = read.mapping(row, "occupancy")
    share, waves, limiter = read.number(held, "share"), read.number(held, "waves"), read.text(held, "limiter")
    lines = []
    if waves is not None and 0.0 < waves < 1.0:
        lines.append(f"Its grid fills only {show.share(waves)} of the GPU: use more, smaller blocks.")
    elif waves is not None and 1.0 < waves <= SECOND_HELPING:
        lines.append(
            f"Its grid has {show.digits(waves)} times the blocks that fit on the GPU: most of the GPU is idle while "
            "the last ones run."
        )
    if share is not None and share < LOW_OCCUPANCY and limiter in REMEDIES:
        blocks = read.whole(held, "blocks")
        why = f"{LIMITS[limiter]} it to {blocks} block{'' if blocks == 1 else 's'} per multiprocessor"
        lines.append(f"Its occupancy is at most {show.share(share)}, because {why}: {REMEDIES[limiter]}.")
    return lines


def _spills(row: Mapping[str, Any]) -> list[str]:
    spilled = sum(read.whole(row, key) or 0 for key in ("spill_stores_bytes", "spill_loads_bytes"))
    return [f"It spills {show.size(spilled)} per thread from registers to memory."] if spilled else []

"""Whether something else touched a measurement: other processes' work on the GPU, or clocks held down.

Pure: readings in, words out. What can't be known disturbs nothing and is recorded as unknown: in a container NVML may
name processes by numbers that mean others here, or none at all, and many drivers don't say who was busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DISTURBED = "disturbed"
"""Label: another process worked on the GPU, or it was throttled, while a solution was timed, repeats included; or in
rounds that were thrown away for it, while those that count are charged for what nothing explains."""

MAX_REPEATS = 4
"""Rounds of one solution that are thrown away and made again; then they count, and the label says so."""

BUSY_PERCENT = 2
"""Share of a sampling period in which a foreign process must have had kernels running; one that only holds memory, or
draws a desktop's clock, disturbs no burst."""

THROTTLED_SHARE = 0.01
"""Share of a round's time for which the clocks must have been held down."""

THROTTLE_REASONS: Mapping[int, str] = {
    0x08: "hardware slowdown",
    0x20: "temperature (software)",
    0x40: "temperature (hardware)",
    0x80: "power brake",
}
"""NVML's clock event reasons that no steady state has (nvml.h, nvmlClocksEventReasons). The software power cap (0x4) is
not among them: it is where heavy kernels run all day long."""

STEADY_REASONS: Mapping[int, str] = {
    0x01: "idle",
    0x02: "clock setting",
    0x04: "power cap (software)",
    0x10: "sync boost",
    0x100: "display clock setting",
}
"""The others of that list."""


def reasons_in_words(mask: int) -> str:
    """The names of a mask's reasons; bits that have none by their number."""
    names = {**STEADY_REASONS, **THROTTLE_REASONS}
    known = [name for bit, name in sorted(names.items()) if mask & bit]
    rest = mask & ~sum(names)
    return ", ".join(known + ([f"{rest:#x}"] if rest else [])) or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What NVML said at one moment. `at_s` is by a steady clock; None is "it did not say".

    `processes` are the ids with a context on the GPU; `busy` maps ids to the highest share of their kernels' time, in
    percent, in the samples since the reading before; `reasons` is the mask of clock event reasons; `throttled_ns` maps
    reasons to nanoseconds that they held the clocks down, since the driver was loaded.
    """

    at_s: float
    processes: frozenset[int] | None = None
    busy: Mapping[int, int] | None = None
    reasons: int | None = None
    throttled_ns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Who else has a context on the GPU. `known` is False where the ids can't be told apart; the rest is None then.

    `busy` counts those that had kernels running, None where the driver does not say who had.
    """

    known: bool
    foreign: int | None = None
    busy: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {"known": self.known, "foreign": self.foreign, "busy": self.busy}


def neighbours(reading: Reading, own_pid: int, parents: Mapping[int, int]) -> Neighbours:
    """Foreign processes: neither `own_pid` nor below it in the tree that `parents` (id -> parent's id) describes.

    Ids are of this process's own namespace only if it finds itself among them: it holds a context, so it must be there.
    An id that `parents` does not know has ended meanwhile.
    """
    if reading.processes is None or own_pid not in reading.processes:
        return Neighbours(known=False)
    foreign = {pid for pid in reading.processes if pid in parents and not _descends(pid, own_pid, parents)}
    busy = None
    if reading.busy is not None:
        busy = sum(reading.busy.get(pid, 0) >= BUSY_PERCENT for pid in foreign)
    return Neighbours(known=True, foreign=len(foreign), busy=busy)


def disturbance(before: Reading, after: Reading, around: Neighbours) -> str | None:
    """What disturbed the time between two readings, in words; None where nothing is known to have."""
    if around.busy:
        plural = "es" if around.busy > 1 else ""
        return f"{around.busy} other process{plural} had kernels running on this GPU"
    spent_ns = max(0.0, (after.at_s - before.at_s) * 1e9)
    for reason, now_ns in after.throttled_ns.items():
        held_ns = now_ns - before.throttled_ns.get(reason, now_ns)
        if held_ns > THROTTLED_SHARE * spent_ns and held_ns > 0:
            return f"clocks were held down by {reason} for {held_ns * 1e-6:.3g} ms"
    if after.reasons is not None:
        named = [name for bit, name in THROTTLE_REASONS.items() if after.reasons & bit]
        if named:
            return f"clocks were held down by {', '.join(named)}"
    return None


@dataclass(slots=True)
class Repeats:
    """Counts the rounds of one solution that were disturbed, and says which of them are made again."""

    seen: list[str] = field(default_factory=list)
    repeated: int = 0

    @property
    def gave_up(self) -> bool:
        """Whether a round counts although it was disturbed."""
        return len(self.seen) > self.repeated

    def keep(self, found: str | None) -> bool:
        """Whether a round counts in which `found` (None: nothing) was noticed."""
        if found is None:
            return True
        self.seen.append(found)
        if self.repeated >= MAX_REPEATS:
            return True
        self.repeated += 1
        return False

    def to_json(self) -> dict[str, Any]:
        return {"rounds_repeated": self.repeated, "seen": self.seen[:8], "counted_all_the_same": self.gave_up}


def _descends(pid: int, root: int, parents: Mapping[int, int]) -> bool:
    seen: set[int] = set()
    while pid not in seen:
        if pid == root:
            return True
        seen.add(pid)
        pid = parents.get(pid, 0)
    return False

"""Decide whether other processes or lowered clocks disturbed a measurement.

Readings in, text out. An unknown value counts as no disturbance and is recorded as unknown. In a container NVML may
report process ids of another namespace, or none. Many drivers do not report which processes were busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.core.json_value import JsonObject

DISTURBED = "disturbed"
"""Label: another process used the GPU, or it was throttled, while the solution was timed, also in repeats. Or repeated
rounds were disturbed and the counted rounds contain time that nothing explains.
"""

MAX_REPEATS = 4
"""Rounds of one solution that are repeated because of a disturbance; further disturbed rounds count, and the label says
so.
"""

BUSY_PERCENT = 2
"""Least share of a sampling period, in percent, in which a foreign process ran kernels. A process that only holds
memory or draws a desktop's clock disturbs no burst.
"""

THROTTLED_SHARE = 0.01
"""Least share of a round's time with lowered clocks."""

THROTTLE_REASONS: Mapping[int, str] = {
    0x08: "hardware slowdown",
    0x20: "temperature (software)",
    0x40: "temperature (hardware)",
    0x80: "power brake",
}
"""NVML's clock event reasons that occur in no steady state (nvml.h, nvmlClocksEventReasons). The software power cap
(0x4) is absent, because heavy kernels always run at it.
"""

STEADY_REASONS: Mapping[int, str] = {
    0x01: "idle",
    0x02: "clock setting",
    0x04: "power cap (software)",
    0x10: "sync boost",
    0x100: "display clock setting",
}
"""The other reasons of that list."""


def reasons_in_words(mask: int) -> str:
    """Return the names of the reasons in a mask; unknown bits as a number."""
    names = {**STEADY_REASONS, **THROTTLE_REASONS}
    known = [name for bit, name in sorted(names.items()) if mask & bit]
    rest = mask & ~sum(names)
    return ", ".join(known + ([f"{rest:#x}"] if rest else [])) or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """State of the GPU by NVML at one moment; None means unknown.

    Attributes:
        at_s: Time by a monotonic clock, in seconds.
        processes: Ids of the processes with a context on the GPU.
        busy: Highest share of kernel time in percent, by process id, in the samples since the previous reading.
        reasons: Mask of clock event reasons.
        throttled_ns: Nanoseconds of lowered clocks by reason, since the driver was loaded.
    """

    at_s: float
    processes: frozenset[int] | None = None
    busy: Mapping[int, int] | None = None
    reasons: int | None = None
    throttled_ns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours(JsonObject):
    """Other processes with a context on the GPU.

    Attributes:
        known: False if the process ids cannot be matched; the other values are None then.
        foreign: Number of other processes.
        busy: Number of those that ran kernels; None if the driver does not report it.
    """

    known: bool
    foreign: int | None = None
    busy: int | None = None


def neighbours(reading: Reading, own_pid: int, parents: Mapping[int, int]) -> Neighbours:
    """Find foreign processes: neither `own_pid` nor descended from it.

    This process holds a context. So the reported ids belong to its pid namespace only if its own id is among them.

    Args:
        reading: State of the GPU.
        own_pid: Id of this process.
        parents: Parent's id by process id; an id that is absent has ended meanwhile.

    Returns:
        Numbers of foreign and of busy foreign processes.
    """
    if reading.processes is None or own_pid not in reading.processes:
        return Neighbours(known=False)
    foreign = {pid for pid in reading.processes if pid in parents and not _descends(pid, own_pid, parents)}
    busy = None
    if reading.busy is not None:
        busy = sum(reading.busy.get(pid, 0) >= BUSY_PERCENT for pid in foreign)
    return Neighbours(known=True, foreign=len(foreign), busy=busy)


def disturbance(before: Reading, after: Reading, around: Neighbours) -> str | None:
    """Describe the disturbance between two readings; None if none is known."""
    if around.busy:
        plural = "es" if around.busy > 1 else ""
        return f"{around.busy} other process{plural} ran kernels on this GPU"
    spent_ns = max(0.0, (after.at_s - before.at_s) * 1e9)
    for reason, now_ns in after.throttled_ns.items():
        held_ns = now_ns - before.throttled_ns.get(reason, now_ns)
        if held_ns > THROTTLED_SHARE * spent_ns and held_ns > 0:
            return f"GPU clocks were lowered for {held_ns * 1e-6:.3g} ms; reason: {reason}"
    if after.reasons is not None:
        named = [name for bit, name in THROTTLE_REASONS.items() if after.reasons & bit]
        if named:
            return f"GPU clocks were lowered; reason: {', '.join(named)}"
    return None


@dataclass(slots=True)
class Repeats:
    """Counts the disturbed rounds of one solution and decides which are repeated."""

    seen: list[str] = field(default_factory=list)
    repeated: int = 0

    @property
    def gave_up(self) -> bool:
        """Whether a disturbed round counts."""
        return len(self.seen) > self.repeated

    def keep(self, found: str | None) -> bool:
        """Return whether a round counts; `found` is its disturbance, or None."""
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

"""What whoever watches a run is told of it, as it happens.

Control layer, trusted side; plain values. The pipeline tells them from one thread; who shows them decides how.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.core.problem import Solution
from harness.core.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """`total` solutions will be evaluated; `skipped` have their record from before (resume)."""

    run_dir: Path
    total: int
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFinished:
    """One solution is built, or failed to."""

    solution: Solution
    wall_s: float
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionFinished:
    """One solution has its record, which is on disk. `slot` is the title of what judged it; None where none did."""

    record: Record
    slot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Something that whoever watches should know: a slot out of service, an interrupt being heeded."""

    message: str


Event = RunStarted | BuildFinished | SolutionFinished | Noted

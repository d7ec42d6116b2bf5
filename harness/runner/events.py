"""Events of a run, for displays.

Trusted side; plain values. A run emits them from one thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.core.preparing import Preparing
from harness.core.problem import Solution
from harness.core.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The run starts.

    Attributes:
        run_dir: The run's folder.
        total: Number of solutions to evaluate.
        skipped: Number of solutions that have a record already (`--resume`).
    """

    run_dir: Path
    total: int
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFinished:
    """One solution is built, or its build failed. `wall_s` is in seconds."""

    solution: Solution
    wall_s: float
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionFinished:
    """One solution has its record; a run emits this after writing it.

    `slot` is the title of the slot that evaluated it; None if the solution was not evaluated, such as after a failed
    build.
    """

    record: Record
    slot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A message for the user: a slot out of service, an interrupt in progress."""

    message: str


Event = Preparing | RunStarted | BuildFinished | SolutionFinished | Noted

"""Interface between a run and the runner behind it: solutions in, events out.

Trusted side; plain values. The runner may be the run's own, one that several runs share, or a server.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from harness.core.record import Record
from harness.runner.executors import Built, Slot, SlotLost
from harness.runner.plan import PlannedSolution

Kind = Literal["build", "open", "judge"]


@dataclass(eq=False, slots=True, kw_only=True)
class PendingSolution:
    """One solution on its way to a record.

    Attributes:
        job: The solution with its problem and workload.
        log_path: The solution's log.
        losses: Number of slots that were lost while they evaluated it.
    """

    job: PlannedSolution
    log_path: Path
    losses: int = 0

    @property
    def place(self) -> Hashable:
        """Key of the problem and workload that a referee keeps loaded.

        Solutions with the same key are evaluated one after another.
        """
        workload = self.job.workload
        return self.job.problem.digest, workload.name, str(sorted(workload.sizes.items()))


class Listener(Protocol):
    """Receives the events of each solution, from several runner threads at once."""

    def wanted(self, work: PendingSolution) -> bool:
        """Return whether the solution is still needed; called before its build starts."""
        ...

    def built(self, work: PendingSolution, built: Built) -> None:
        """The build is over; if it failed, `finished` comes next."""
        ...

    def finished(self, work: PendingSolution, record: Record, slot: Slot | None) -> None:
        """The solution has its record.

        `slot` evaluated it; None if none did.
        """
        ...

    def failed(self, work: PendingSolution | None, error: BaseException) -> None:
        """No record is possible, because of an error that is not the solution's.

        `work` is None if the error concerns no single solution.
        """
        ...

    def lost(self, lost: SlotLost, cause: BaseException | None) -> None:
        """A slot is out of service.

        `cause` is given if the error was unexpected. The slot's solution was given back or reported before.
        """
        ...

    def left(self, kind: Kind) -> None:
        """A thread of this kind has ended."""
        ...

    def noted(self, message: str) -> None:
        """A message for the user."""
        ...


class RunnerHandle(Protocol):
    """The runner behind one run: its own, or its share of a common one."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """The kinds of its threads; `left` is called once per entry."""
        ...

    @property
    def judging(self) -> int:
        """Number of solutions under evaluation; valid after `stop`."""
        ...

    @property
    def lost(self) -> str:
        """Why no slot is left; empty as long as one is."""
        ...

    def start(self) -> None: ...

    def stop(self) -> None:
        """Start nothing new; current evaluations go on. Idempotent."""
        ...

    def close(self) -> None:
        """Stop listening; call it after `stop`. Idempotent."""
        ...


Conduct = Callable[[Listener, Sequence[PendingSolution]], RunnerHandle]
"""Creates the runner for a listener and its solutions."""

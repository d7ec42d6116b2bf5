"""What is said between a run and what builds and judges for it: works, and what becomes of them.

Control layer, trusted side; plain values. Behind it is a conductor of the run's own, a part of one that several share,
or a server.
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
    """One solution on its way. `log_path` is its own; `losses` counts the slots that were lost with it."""

    job: PlannedSolution
    log_path: Path
    losses: int = 0

    @property
    def place(self) -> Hashable:
        """What a referee keeps ready: solutions to the same go together."""
        workload = self.job.workload
        return self.job.problem.digest, workload.name, str(sorted(workload.sizes.items()))


class Listener(Protocol):
    """Is told what becomes of each solution, from the conductor's threads: several at once."""

    def wanted(self, work: PendingSolution) -> bool:
        """Asked when its build is about to begin: whether anybody waits for it still."""
        ...

    def built(self, work: PendingSolution, built: Built) -> None:
        """Its build is over; where it failed, `finished` comes next."""
        ...

    def finished(self, work: PendingSolution, record: Record, slot: Slot | None) -> None:
        """Its record, and what judged it; None where nothing did."""
        ...

    def failed(self, work: PendingSolution | None, error: BaseException) -> None:
        """No record can be had for this reason, which is not the solution's; None where it is no single one's."""
        ...

    def lost(self, lost: SlotLost, cause: BaseException | None) -> None:
        """A slot is out of service; where nobody could expect why, with the `cause`. What it was at went back, or was
        told of before.
        """
        ...

    def left(self, kind: Kind) -> None:
        """The last word of a thread of this kind."""
        ...

    def noted(self, message: str) -> None:
        """What whoever watches should know."""
        ...


class RunnerHandle(Protocol):
    """What is behind one run: a conductor of its own, or its part of one that several share."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """One for each time that `left` will be told."""
        ...

    @property
    def judging(self) -> int:
        """Solutions being judged; asked after `stop`."""
        ...

    @property
    def lost(self) -> str:
        """Why no slot is left; empty as long as there is one."""
        ...

    def start(self) -> None: ...

    def stop(self) -> None:
        """Begin nothing any more; what is being judged comes to its end. Idempotent."""
        ...

    def close(self) -> None:
        """After `stop`: nobody listens any more. Idempotent."""
        ...


Conduct = Callable[[Listener, Sequence[PendingSolution]], RunnerHandle]
"""What makes that of a run's works, for its listener."""

"""One conductor for several runs at once: the solutions of all go through the same builders and slots.

Control layer, trusted side. A `RunShare` is one run's part: to that run it is what a conductor of its own would be.
What comes of a solution goes to the run that it belongs to, what befalls a slot to all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.record import Record
from harness.runner.executors import Built, Executor, Slot, SlotLost
from harness.runner.executors.problem_faults import EVIDENCE
from harness.runner.listeners import Kind, Listener, PendingSolution
from harness.runner.runner import AHEAD, Runner
from harness.runner.scheduler import Schedule, dealt


class SharedRunner:
    """Runs the works of its shares through an executor, which it closes at the end. Safe for threads."""

    def __init__(self, executor: Executor, config: RunConfig, environment: Environment) -> None:
        self._executor = executor
        self._lock = threading.RLock()
        self._owners: dict[PendingSolution, RunShare] = {}
        self._shares: list[RunShare] = []
        self._failed = False
        self.whole = True
        """Whether no slot was lost, and no problem found at fault: an executor tries neither again."""
        builders = max(1, executor.builders)
        self._schedule: Schedule[PendingSolution, Built] = Schedule(
            (), ahead=AHEAD + builders, more=True, slots=len(executor.slots)
        )
        self._runner = Runner(executor, config, environment, self._schedule, self, builders=builders)
        self._runner.start()

    @property
    def gone(self) -> str:
        """Why no slot is left; empty as long as there is one."""
        return self._runner.lost

    @property
    def usable(self) -> bool:
        """Whether it can still take works: some slot is left, and none of its threads failed."""
        return not (self._failed or self.gone)

    def share(self, listener: Listener, works: Sequence[PendingSolution]) -> RunShare:
        """A run's part, to be started."""
        return RunShare(self, listener, works)

    def add(self, share: RunShare, works: Sequence[PendingSolution]) -> None:
        """Let these be done for `share`."""
        with self._lock:
            self._shares.append(share)
            self._owners |= dict.fromkeys(works, share)
        for place, work in dealt(((work.place, work) for work in works), len(self._executor.slots)):
            self._schedule.add(place, work)
        if not self.usable:  # lost before: nobody will be told so again
            share.listener.lost(SlotLost(self.gone or "what judged failed"), None)
            share.end()

    def withdraw(self, share: RunShare) -> None:
        """Begin nothing more for `share`; what is being judged for it goes on."""
        with self._lock:
            mine = {id(work) for work, owner in self._owners.items() if owner is share}
            taken, built = self._schedule.withdraw(lambda work: id(work) in mine)
            for work in taken:
                self._owners.pop(work, None)
        for ready in built:
            ready.built.release()
        share.dropped(taken)

    def forget(self, share: RunShare) -> None:
        """Nobody listens for `share` any more."""
        with self._lock:
            self._owners = {work: owner for work, owner in self._owners.items() if owner is not share}
            self._shares = [other for other in self._shares if other is not share]

    def close(self) -> None:
        """End every process; nobody may have a share any more. Idempotent."""
        self._runner.stop()
        self._executor.close()
        self._runner.close()
        self._runner.join()

    def wanted(self, work: PendingSolution) -> bool:
        with self._lock:
            return work in self._owners

    def built(self, work: PendingSolution, built: Built) -> None:
        self._tell(work, lambda listener: listener.built(work, built))

    def finished(self, work: PendingSolution, record: Record, slot: Slot | None) -> None:
        self.whole = self.whole and EVIDENCE not in record.evidence
        self._tell(work, lambda listener: listener.finished(work, record, slot), over=True)

    def failed(self, work: PendingSolution | None, error: BaseException) -> None:
        if work is not None:
            self._tell(work, lambda listener: listener.failed(work, error), over=True)
            return
        self._failed = True
        for share in self._all():
            share.listener.failed(None, error)

    def lost(self, lost: SlotLost, cause: BaseException | None) -> None:
        self.whole = False
        for share in self._all():
            share.listener.lost(lost, cause)
        if self.gone:  # not before: a run that has heard that nothing comes any more listens no longer
            self._end_all()

    def left(self, kind: Kind) -> None:
        """Of its threads. Where one failed, nothing of what the shares still wait for is sure to come."""
        if self._failed:
            self._end_all()

    def _end_all(self) -> None:
        for share in self._all():
            share.end()

    def noted(self, message: str) -> None:
        for share in self._all():
            share.listener.noted(message)

    def _all(self) -> list[RunShare]:
        with self._lock:
            return list(self._shares)

    def _tell(self, work: PendingSolution, tell: Callable[[Listener], None], *, over: bool = False) -> None:
        with self._lock:
            share = self._owners.pop(work, None) if over else self._owners.get(work)
        if share is not None:
            tell(share.listener)
            if over:
                share.dropped([work])


class RunShare:
    """One run's part of a `SharedRunner` conductor."""

    kinds: Sequence[Kind] = ("build", "judge")

    def __init__(self, shared: SharedRunner, listener: Listener, works: Sequence[PendingSolution]) -> None:
        self.listener = listener
        self._shared = shared
        self._works = works
        self._left = {id(work) for work in works}
        self._lock = threading.Lock()
        self._over = False

    @property
    def judging(self) -> int:
        """After `stop`, what is left is being judged."""
        return len(self._left)

    @property
    def lost(self) -> str:
        return self._shared.gone

    def start(self) -> None:
        self._shared.add(self, self._works)
        self.dropped(())

    def stop(self) -> None:
        self._shared.withdraw(self)

    def close(self) -> None:
        self._shared.withdraw(self)
        self._shared.forget(self)

    def dropped(self, works: Collection[PendingSolution]) -> None:
        """These are over for this run: judged, or not to be."""
        with self._lock:
            self._left -= {id(work) for work in works}
            left = bool(self._left)
        if not left:
            self.end()

    def end(self) -> None:
        """Nothing comes any more: what a conductor's threads would say last."""
        with self._lock:
            if self._over:
                return
            self._over = True
        for kind in self.kinds:
            self.listener.left(kind)

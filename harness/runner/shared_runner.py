"""One runner for several runs: their solutions share builders and slots.

Trusted side. A `RunShare` is one run's part and looks to that run like a runner of its own. Events of a solution go to
its run, events of a slot to all runs.
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
    """Runs the solutions of its shares through an executor.

    Closes the executor at the end. Thread-safe.
    """

    def __init__(self, executor: Executor, config: RunConfig, environment: Environment) -> None:
        self._executor = executor
        self._lock = threading.RLock()
        self._owners: dict[PendingSolution, RunShare] = {}
        self._shares: list[RunShare] = []
        self._failed = False
        self.whole = True
        """Whether no slot was lost and no problem found at fault; an executor retries neither."""
        builders = max(1, executor.builders)
        self._schedule: Schedule[PendingSolution, Built] = Schedule(
            (), ahead=AHEAD + builders, more=True, slots=len(executor.slots)
        )
        self._runner = Runner(executor, config, environment, self._schedule, self, builders=builders)
        self._runner.start()

    @property
    def gone(self) -> str:
        """Why no slot is left; empty as long as one is."""
        return self._runner.lost

    @property
    def usable(self) -> bool:
        """Whether it accepts solutions: a slot is left, and no thread failed."""
        return not (self._failed or self.gone)

    def share(self, listener: Listener, works: Sequence[PendingSolution]) -> RunShare:
        """Return a run's share; it is not started."""
        return RunShare(self, listener, works)

    def add(self, share: RunShare, works: Sequence[PendingSolution]) -> None:
        """Schedule these solutions for `share`."""
        with self._lock:
            self._shares.append(share)
            self._owners |= dict.fromkeys(works, share)
        for place, work in dealt(((work.place, work) for work in works), len(self._executor.slots)):
            self._schedule.add(place, work)
        if not self.usable:  # the loss was reported before this share came
            share.listener.lost(SlotLost(self.gone or "a thread of the runner failed"), None)
            share.end()

    def withdraw(self, share: RunShare) -> None:
        """Start nothing more for `share`; its current evaluations go on."""
        with self._lock:
            mine = {id(work) for work, owner in self._owners.items() if owner is share}
            taken, built = self._schedule.withdraw(lambda work: id(work) in mine)
            for work in taken:
                self._owners.pop(work, None)
        for ready in built:
            ready.built.release()
        share.dropped(taken)

    def forget(self, share: RunShare) -> None:
        """Stop sending events to `share`."""
        with self._lock:
            self._owners = {work: owner for work, owner in self._owners.items() if owner is not share}
            self._shares = [other for other in self._shares if other is not share]

    def close(self) -> None:
        """End every process; no share may be in use. Idempotent."""
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
        if self.gone:  # only after `lost`: an ended share listens no longer
            self._end_all()

    def left(self, kind: Kind) -> None:
        """End all shares if a thread failed: their remaining solutions may never finish."""
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
    """One run's part of a `SharedRunner`."""

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
        """Number of remaining solutions; after `stop`, all of them are under evaluation."""
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
        """Note that these solutions are finished or withdrawn."""
        with self._lock:
            self._left -= {id(work) for work in works}
            left = bool(self._left)
        if not left:
            self.end()

    def end(self) -> None:
        """Report the end of each kind of thread, as a runner's threads do. Idempotent."""
        with self._lock:
            if self._over:
                return
            self._over = True
        for kind in self.kinds:
            self.listener.left(kind)

"""Evaluate a run: build ahead, evaluate on every slot, append records.

Trusted side. A `Runner`'s threads build and evaluate through an `Executor`. Only the calling thread writes records and
emits events, so callers need no lock. Prints nothing and imports no torch.
"""

from __future__ import annotations

import errno
import queue
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.catalog import find_authors
from harness.core.atomic_file import FULL_OR_BROKEN
from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.record import Record
from harness.results.reader import StoreError, StoreUnavailable
from harness.results.writer import RunStore, removed
from harness.runner.events import BuildFinished, Event, Noted, RunStarted, SolutionFinished
from harness.runner.executors import Built, Executor, ExecutorError, Slot, SlotLost
from harness.runner.executors.prestart import Prestart
from harness.runner.executors.problem_faults import EVIDENCE
from harness.runner.listeners import Conduct, Kind, Listener, PendingSolution, RunnerHandle
from harness.runner.plan import PlannedSolution, identity_of, is_done, plan

GRACE_S = 20.0
"""How long evaluations may go on after an interrupt, in seconds."""

MACHINE_ERRORS = FULL_OR_BROKEN | {errno.EROFS, errno.EMFILE, errno.ENFILE}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A finished run.

    Attributes:
        run_dir: The run's folder.
        records: Records of the solutions that were evaluated.
        skipped: Number of solutions that had a record already.
        wall_s: Duration in seconds.
    """

    run_dir: Path
    records: tuple[Record, ...]
    skipped: int
    wall_s: float


def evaluate_run(
    config: RunConfig,
    *,
    environment: Environment,
    on_event: Callable[[Event], None] = lambda event: None,
    executor: Executor | None = None,
    ahead: Prestart | None = None,
    conduct: Conduct | None = None,
) -> RunSummary:
    """Evaluate everything that `config` names; append the records to its folder.

    An error of one solution does not affect the others. After the first `KeyboardInterrupt` nothing new starts, and
    current evaluations have `GRACE_S` to finish; a second one ends them at once. Then it is raised. Finished records
    are on disk, and `--resume` evaluates the rest.

    Args:
        config: The run's configuration.
        environment: This machine.
        on_event: Called with each event, from this thread.
        executor: Executor to use; it is left open. If None, the one that `config` names is opened for this run.
        ahead: Processes that were already started for this run; their owner ends those that remain.
        conduct: Creates the runner, such as a server's. If None, the run has its own.

    Returns:
        The run's folder and records.

    Raises:
        CatalogError: The call is wrong; nothing was compiled.
        StoreError: The run's folder can't be created or resumed.
        StoreUnavailable: The disk is full or broken.
        ExecutorError: No device is available, or none is left.
        CacheError: The cache can't be used.
        MachineError: A tool or device is missing.
        KeyboardInterrupt: The run was interrupted.
    """
    begin = time.perf_counter()
    jobs = plan(config)
    settings = config.to_json()
    authors, unread = find_authors([job.solution for job in jobs])
    resumed = config.resume and config.run_dir.exists()
    store = (
        RunStore.resume(
            config.run_dir, config=settings, asked=[identity_of(job, config) for job in jobs], authors=authors
        )
        if resumed
        else RunStore.create(
            config.run_dir,
            config=settings,
            environment=environment.to_json(),
            authors=authors,
            solutions=len(jobs),
        )
    )
    with store:
        finished = store.finished() if config.resume else {}
        pending = [job for job in jobs if not is_done(job, config, finished)]
        del finished
        began = RunStarted(run_dir=config.run_dir, total=len(pending), skipped=len(jobs) - len(pending))
        first: list[Event] = [
            began,
            *(Noted(message=f"ignored an author's description: {finding}") for finding in unread),
        ]
        if pending:
            logs, elsewhere = store.folder / "logs", conduct is not None
            with ExitStack() as stack:
                try:
                    if conduct is None:
                        from harness.runner.executors.open_executor import open_executor

                        used = executor or stack.enter_context(open_executor(config, environment, logs, ahead))
                        conduct = _runner(config, environment, used)
                except BaseException:
                    if not resumed:  # so that the same call works again after the error is fixed
                        store.withdraw()
                    raise
                try:
                    _Run(config, store, on_event, pending, conduct).run(first)
                except Exception:
                    with suppress(StoreError, OSError):  # a removed folder is the error that is raised already
                        if not resumed and elsewhere and not store.records():  # as above: the server refused the run
                            store.withdraw()
                    raise
        else:
            for event in first:
                on_event(event)
        wanted = {job.solution.label for job in pending}
        records = tuple(record for record in store.records() if record.solution in wanted)
        wall_s = time.perf_counter() - begin
        store.note_session({"evaluated": len(pending), "skipped": len(jobs) - len(pending), "wall_s": wall_s})
    return RunSummary(run_dir=config.run_dir, records=records, skipped=len(jobs) - len(pending), wall_s=wall_s)


def _runner(config: RunConfig, environment: Environment, executor: Executor) -> Conduct:
    """Return a `Conduct` for the run's own runner, over this executor."""
    # Imported here: a run on a server does not need it.
    from harness.runner.runner import AHEAD, Runner
    from harness.runner.scheduler import Schedule, dealt

    def conduct(listener: Listener, works: Sequence[PendingSolution]) -> RunnerHandle:
        builders = max(1, min(executor.builders, len(works)))
        ordered = dealt(((work.place, work) for work in works), len(executor.slots))
        schedule: Schedule[PendingSolution, Built] = Schedule(ordered, ahead=AHEAD + builders)
        return Runner(executor, config, environment, schedule, listener, builders=builders)

    return conduct


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """A message of a thread to the calling thread."""

    event: Event | None = None
    record: Record | None = None
    slot: Slot | None = None
    lost: SlotLost | None = None
    error: BaseException | None = None
    left: Kind | None = None
    """The kind of the thread that has ended."""


class _Run:
    """One run in progress.

    Turns the calls of the runner's threads into messages to the calling thread.
    """

    def __init__(
        self,
        config: RunConfig,
        store: RunStore,
        on_event: Callable[[Event], None],
        jobs: list[PlannedSolution],
        conduct: Conduct,
    ) -> None:
        self._config = config
        self._store = store
        self._on_event = on_event
        self._messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._done = 0
        self._total = len(jobs)
        self._left = Counter(job.problem.digest for job in jobs)
        self._faults_told: set[str | None] = set()
        works = [PendingSolution(job=job, log_path=store.log_path(job.solution.label)) for job in jobs]
        self._runner = conduct(self, works)

    def run(self, first: Sequence[Event]) -> None:
        """Evaluate everything; `first` holds the events to emit before all others.

        Raises the error that ends the run.
        """
        running = Counter(self._runner.kinds)
        self._runner.start()
        try:
            for event in first:  # after `start`: a display may take long to import
                self._on_event(event)
            while running["build"] or running["judge"]:
                self._heed(self._messages.get(), running)
        except KeyboardInterrupt:
            self._finish_what_runs(running)
            raise
        finally:
            self._runner.stop()
            self._runner.close()
        if self._done < self._total:
            raise ExecutorError(
                f"no device is left for {self._total - self._done} solutions ({self._runner.lost}); fix the device, "
                f"then evaluate them with --resume"
            )

    def _finish_what_runs(self, running: Counter[Kind]) -> None:
        self._runner.stop()
        if judging := self._runner.judging:
            several = "s" if judging > 1 else ""
            what = f"finishing the {judging} solution{several} under evaluation; interrupt again to end at once"
            self._on_event(Noted(message=f"interrupted: {what}"))
        deadline = time.monotonic() + GRACE_S
        while running["judge"]:
            try:
                self._heed(self._messages.get(timeout=max(0.0, deadline - time.monotonic())), running)
            except queue.Empty:
                return

    def _heed(self, message: _Message, running: Counter[Kind]) -> None:
        """Handle one message of a thread."""
        if message.error is not None:
            raise message.error
        if message.event is not None:
            self._on_event(message.event)
        if message.lost is not None:
            self._on_event(Noted(message=f"out of service: {message.lost}"))
        if message.record is not None:
            self._store.append(message.record)
            self._done += 1
            title = message.slot.title if message.slot is not None else None
            self._on_event(SolutionFinished(record=message.record, slot=title))
            self._tell_fault(message.record)
        if message.left is not None:
            running[message.left] -= 1

    def _tell_fault(self, record: Record) -> None:
        """Note, once per faulty problem, how many other solutions it affects."""
        digest = record.problem_digest
        self._left[digest] -= 1
        if EVIDENCE in record.evidence and digest not in self._faults_told:
            self._faults_told.add(digest)
            left = self._left[digest]
            which = f"{left} other solutions" if left > 1 else "1 other solution"
            others = f"; {which} of this problem will get the same record without evaluation" if left else ""
            self._on_event(Noted(message=f"{record.reason}{others}"))

    def wanted(self, work: PendingSolution) -> bool:
        return True

    def built(self, work: PendingSolution, built: Built) -> None:
        failed = built.failure is not None
        event = BuildFinished(solution=work.job.solution, wall_s=built.wall_s, failed=failed)
        self._messages.put(_Message(event=event))

    def finished(self, work: PendingSolution, record: Record, slot: Slot | None) -> None:
        self._messages.put(_Message(record=record, slot=slot))

    def failed(self, work: PendingSolution | None, error: BaseException) -> None:
        """End the run with an error that a thread can't handle."""
        self._messages.put(_Message(error=self._explained(error)))

    def _explained(self, error: BaseException) -> BaseException:
        if not isinstance(error, OSError):
            return error
        if error.errno in MACHINE_ERRORS:
            where = error.filename or self._config.run_dir
            return StoreUnavailable(f"{where}: {error.strerror}; free disk space, then continue the run with --resume")
        return error if (self._store.folder / "logs").is_dir() else removed(self._config.run_dir)

    def lost(self, lost: SlotLost, cause: BaseException | None) -> None:
        if cause is not None:
            self.failed(None, cause)
        else:
            self._messages.put(_Message(lost=lost))

    def left(self, kind: Kind) -> None:
        self._messages.put(_Message(left=kind))

    def noted(self, message: str) -> None:
        self._messages.put(_Message(event=Noted(message=message)))

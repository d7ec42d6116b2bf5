"""From solution files to records: build ahead, judge on every slot, append each record as it finishes.

Trusted side. A `Runner`'s threads build and judge through an `Executor`; the calling thread alone writes records
and tells events, so that whoever calls needs no lock. It prints nothing, and imports no torch: the referees do that
meanwhile.
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
"""How long after an interrupt the solutions being judged may take to get their records."""

MACHINE_ERRORS = FULL_OR_BROKEN | {errno.EROFS, errno.EMFILE, errno.ENFILE}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A finished run: its folder, the records of the solutions asked for, how long it took (seconds)."""

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
    """Evaluate everything that `config` names and append the records to its run folder.

    `executor` is used and left open; without one, what `config` asks for is opened for the run, with the processes that
    were started `ahead` for it: what is left of them is its owner's to end. Raises `CatalogError` (wrong call, before
    anything is compiled), `StoreError`, `StoreUnavailable` (the disk is full), `ExecutorError`, `CacheError` or
    `MachineError` (the machine can't). Whatever happens to one solution leaves the others alone.

    On `KeyboardInterrupt` nothing new begins; what is being judged gets `GRACE_S` to finish and its record, or ends at
    once on a second one; then it is raised. Everything that is finished is on disk, and `--resume` does the rest.
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
            *(Noted(message=f"what an author says is left out: {finding}") for finding in unread),
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
                    if not resumed:  # the same call, once that is mended, is no second run
                        store.withdraw()
                    raise
                try:
                    _Run(config, store, on_event, pending, conduct).run(first)
                except Exception:
                    with suppress(StoreError, OSError):  # the folder may be gone, which is what is raised
                        if not resumed and elsewhere and not store.records():  # as above: it could not begin there
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
    """A run's own conductor, over this executor."""
    # Not at the top: where others build and judge, none of that is needed.
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
    """What a thread tells the calling one."""

    event: Event | None = None
    record: Record | None = None
    slot: Slot | None = None
    lost: SlotLost | None = None
    error: BaseException | None = None
    left: Kind | None = None
    """The kind of thread whose last word this is."""


class _Run:
    """One run between start and end; what its conductor tells becomes messages to the calling thread."""

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
        """Everything to its record; these events come before all others. Raises what ends the run."""
        running = Counter(self._runner.kinds)
        self._runner.start()
        try:
            for event in first:  # whoever shows them may first have to import how
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
                f"no device is left to judge {self._total - self._done} solutions ({self._runner.lost}); --resume "
                f"does them once that is mended"
            )

    def _finish_what_runs(self, running: Counter[Kind]) -> None:
        self._runner.stop()
        if judging := self._runner.judging:
            several = "s" if judging > 1 else ""
            what = f"finishing the {judging} solution{several} being judged; interrupt again to end at once"
            self._on_event(Noted(message=f"interrupted: {what}"))
        deadline = time.monotonic() + GRACE_S
        while running["judge"]:
            try:
                self._heed(self._messages.get(timeout=max(0.0, deadline - time.monotonic())), running)
            except queue.Empty:
                return

    def _heed(self, message: _Message, running: Counter[Kind]) -> None:
        """Do what a thread asks for."""
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
        """Say once of a problem at fault what that means for its other solutions."""
        digest = record.problem_digest
        self._left[digest] -= 1
        if EVIDENCE in record.evidence and digest not in self._faults_told:
            self._faults_told.add(digest)
            left = self._left[digest]
            which = f"{left} other solutions here get" if left > 1 else "other solution here gets"
            others = f"; its {which} the same record untried" if left else ""
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
        """Whatever a thread can't handle ends the run."""
        self._messages.put(_Message(error=self._explained(error)))

    def _explained(self, error: BaseException) -> BaseException:
        if not isinstance(error, OSError):
            return error
        if error.errno in MACHINE_ERRORS:
            where = error.filename or self._config.run_dir
            return StoreUnavailable(f"{where}: {error.strerror}; make room, then --resume continues the run")
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

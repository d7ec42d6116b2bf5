"""Evaluate a run: build ahead, evaluate on every slot, append records.

Trusted side. A `Runner` builds and evaluates: the run's own, or a server's. Only the calling thread writes records and
emits events, so callers need no lock. Prints nothing and imports no torch.
"""

from __future__ import annotations

import errno
import importlib.util
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.catalog import RejectedFile, find_authors
from harness.catalog.source_files import listed
from harness.core.atomic_file import FULL_OR_BROKEN
from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.preparing import Preparing, TellPreparing
from harness.core.record import Record
from harness.core.status import Status
from harness.results.reader import RecordLines, StoreError, StoreUnavailable
from harness.results.writer import RunStore, removed
from harness.runner.events import Event, Noted, RunStarted, SolutionFinished
from harness.runner.executors import Executor, ExecutorError, SlotLost
from harness.runner.executors.prestart import Prestart
from harness.runner.executors.problem_faults import EVIDENCE
from harness.runner.plan import PendingSolution, PlannedSolution, identity_of, is_done, plan
from harness.runner.scheduler import dealt

GRACE_S = 20.0
"""How long evaluations may go on after an interrupt, in seconds."""

PORTION = 4096
"""Most solutions of a run that its runner has at a time; more follow when half of them have their records.

Each takes about 3 KB of memory meanwhile. Among so many, each of several slots finds a problem of its own.
"""

MOST_AT_ONCE = 256
"""Most messages that are received, and most records that are written, at once."""

MAX_REJECTED_LINES = 50
"""Most rejected files that are named one by one; a folder of helpers may have thousands."""

MACHINE_ERRORS = FULL_OR_BROKEN | {errno.EROFS, errno.EMFILE, errno.ENFILE}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A finished run.

    Attributes:
        run_dir: The run's folder.
        records: Records of the solutions that were evaluated; iterating them reads them from disk.
        skipped: Number of solutions that had a record already.
        wall_s: Duration in seconds.
        rejected: Files that can't be evaluated: they have no record.
    """

    run_dir: Path
    records: Sequence[Record]
    skipped: int
    wall_s: float
    rejected: tuple[RejectedFile, ...] = ()


class Submits(Protocol):
    """Evaluates the solutions of a run: its own `Runner`, or a server."""

    def submit(
        self, works: Sequence[PendingSolution], notify: Callable[[Event], None], /, *, last: bool
    ) -> list[Future[SolutionFinished]]: ...

    def cancel(self, futures: Collection[Future[SolutionFinished]], /) -> int: ...


def evaluate_run(
    config: RunConfig,
    *,
    environment: Environment,
    on_event: Callable[[Event], None] = lambda event: None,
    executor: Executor | None = None,
    ahead: Prestart | None = None,
    runner: Submits | None = None,
    jobs: Sequence[PlannedSolution] | None = None,
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
        runner: Evaluates the solutions, such as a server; it is left open. If None, the run has its own.
        jobs: The solutions, if they are planned already; None finds those that `config` names.

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
    rejected: list[RejectedFile] = []
    jobs = plan(config, rejected.append) if jobs is None else jobs
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
        began_at = store.end
        finished = store.finished() if config.resume else {}
        pending = [job for job in jobs if not is_done(job, config, finished)]
        del finished
        began = RunStarted(run_dir=config.run_dir, total=len(pending), skipped=len(jobs) - len(pending))
        first: list[Event] = [
            began,
            *(Noted(message=f"not evaluated: {line}") for line in listed(rejected, MAX_REJECTED_LINES)),
            *(Noted(message=f"ignored an author's description: {finding}") for finding in unread),
        ]
        if pending:
            elsewhere = runner is not None
            # A server gets all at once, since several runs may use it.
            run = _Run(config, store, on_event, pending, portion=PORTION if runner is None else len(pending))
            with ExitStack() as stack:
                try:
                    if runner is None:
                        from harness.runner.cascade import open_cascade
                        from harness.runner.runner import Runner  # here: a run on a server does not need it

                        logs = store.folder / "logs"
                        used = executor or stack.enter_context(
                            open_executor(config, environment, logs, ahead, run.tell)
                        )
                        run.deal(len(used.slots))
                        first_on_cpu = open_cascade(
                            config,
                            environment,
                            logs,
                            lambda settings, folder: stack.enter_context(
                                open_executor(settings, environment, folder, None, run.tell)
                            ),
                        )
                        own = Runner(
                            used, config, environment, lambda work, event: event, once=True, cascade=first_on_cpu
                        )
                        runner = stack.enter_context(closing(own))
                except BaseException:
                    if not resumed:  # so that the same call works again after the error is fixed
                        store.withdraw()
                    raise
                try:
                    run.run(runner, first)
                except Exception:
                    with suppress(StoreError, OSError):  # a removed folder is the error that is raised already
                        if not resumed and elsewhere and not store.end:  # as above: the server refused the run
                            store.withdraw()
                    raise
        else:
            for event in first:
                on_event(event)
        records = RecordLines(config.run_dir, start=began_at, end=store.end)
        wall_s = time.perf_counter() - begin
        store.note_session({"evaluated": len(pending), "skipped": len(jobs) - len(pending), "wall_s": wall_s})
    return RunSummary(
        run_dir=config.run_dir,
        records=records,
        skipped=len(jobs) - len(pending),
        wall_s=wall_s,
        rejected=tuple(rejected),
    )


def open_executor(
    config: RunConfig, environment: Environment, logs: Path, ahead: Prestart | None, tell: TellPreparing
) -> AbstractContextManager[Executor]:
    """Open the executor that `config` names. Raises `ExecutorError`."""
    if config.executor == "local":
        from harness.runner.executors.local import LocalExecutor

        return LocalExecutor(config, environment, logs, ahead=ahead, tell=tell)
    if importlib.util.find_spec("ray") is None:
        raise ExecutorError("--executor ray needs the package ray: pip install 'kernel-harness[ray]'")
    from harness.runner.executors.ray import RayExecutor

    return RayExecutor(config)


class _Run:
    """One run in progress: receives finished futures and events in the calling thread."""

    def __init__(
        self,
        config: RunConfig,
        store: RunStore,
        on_event: Callable[[Event], None],
        jobs: Sequence[PlannedSolution],
        *,
        portion: int,
    ) -> None:
        self._config = config
        self._store = store
        self._on_event = on_event
        self._jobs = deque(jobs)
        """Solutions that the runner does not have yet."""
        self._portion = portion
        self._futures: set[Future[SolutionFinished]] = set()
        self._messages: queue.SimpleQueue[Event | Future[SolutionFinished]] = queue.SimpleQueue()
        self._heard: list[Event | Future[SolutionFinished]] = []
        """Messages that were received and not heeded yet."""
        self._unfinished = len(jobs)
        self._left = Counter(job.problem.digest for job in jobs)
        self._failed = False
        self._cancelled = 0
        self._thread = threading.get_ident()
        self._faulty: set[str | None] = set()

    def deal(self, slots: int) -> None:
        """Order the solutions so that each of several portions suits all slots."""
        if len(self._jobs) > self._portion:
            self._jobs = deque(job for _, job in dealt(((job.place, job) for job in self._jobs), slots))

    def tell(self, event: Preparing) -> None:
        """Emit the progress of a preparation in the calling thread."""
        (self._on_event if threading.get_ident() == self._thread else self._messages.put)(event)

    def run(self, runner: Submits, first: Sequence[Event]) -> None:
        """Evaluate everything; `first` holds the events to emit before all others.

        Raises the error that ends the run.
        """
        self._submit(runner)
        try:
            for event in first:  # after `submit`: a display may take long to import
                self._on_event(event)
            while self._unfinished:
                self._heed()
                if self._failed and self._config.stop_at_failure:
                    self._stop(runner)
                elif len(self._futures) <= self._portion // 2:
                    self._submit(runner)
        except KeyboardInterrupt:
            if judging := self._cancel(runner):
                several = "s" if judging > 1 else ""
                what = f"finishing the {judging} solution{several} under evaluation; interrupt again to end at once"
                self._on_event(Noted(message=f"interrupted: {what}"))
            deadline = time.monotonic() + GRACE_S
            with suppress(queue.Empty):
                while self._unfinished:
                    self._heed(max(0.0, deadline - time.monotonic()))
            raise

    def _submit(self, runner: Submits) -> None:
        """Fill up what the runner has, if solutions are left."""
        count = min(len(self._jobs), self._portion - len(self._futures))
        if not count:
            return
        jobs = [self._jobs.popleft() for _ in range(count)]
        works = [PendingSolution(job=job, log_path=self._store.log_path(job.solution.label)) for job in jobs]
        futures = runner.submit(works, self._messages.put, last=not self._jobs)
        self._futures.update(futures)
        for future in futures:
            future.add_done_callback(self._messages.put)

    def _cancel(self, runner: Submits) -> int:
        """Cancel the solutions that are not under evaluation; return how many go on."""
        self._cancelled += len(self._jobs)
        self._unfinished -= len(self._jobs)
        self._jobs.clear()
        return runner.cancel(self._futures)

    def _stop(self, runner: Submits) -> None:
        """Cancel the solutions that are not under evaluation, and finish the others."""
        self._cancel(runner)
        while self._unfinished:
            self._heed()
        if self._cancelled:
            again = f"--resume --run-id {self._config.run_id} without -x evaluates the rest"
            which = f"{self._cancelled} solution{'' if self._cancelled == 1 else 's'} not evaluated"
            self._on_event(Noted(message=f"stopped at the first failure (-x): {which}; {again}"))

    def _heed(self, timeout_s: float | None = None) -> None:
        """Wait for messages; write all their records at once, then emit the events.

        After an interrupt the next call goes on with the same messages. Raises `queue.Empty` after the timeout.
        """
        heard = self._heard
        if not heard:
            heard.append(self._messages.get(timeout=timeout_s))
        with suppress(queue.Empty):
            while len(heard) < MOST_AT_ONCE:
                heard.append(self._messages.get_nowait())
        events: list[Event] = []
        failures: list[BaseException] = []
        cancelled = 0
        for message in heard:
            try:
                events.append(message.result() if isinstance(message, Future) else message)
            except CancelledError:  # after an interrupt or a failure
                cancelled += 1
            except Exception as error:
                failures.append(error)
        self._store.append(*[event.record for event in events if isinstance(event, SolutionFinished)])
        self._heard = []
        settled = {message for message in heard if isinstance(message, Future)}
        self._futures -= settled
        self._unfinished -= len(settled)
        self._cancelled += cancelled
        for event in events:
            self._on_event(event)
            if isinstance(event, SolutionFinished):
                self._failed = self._failed or event.record.status is not Status.passed
                self._tell_fault(event.record)
        if failures:
            raise self._explained(failures[0], self._unfinished + len(failures)) from None

    def _tell_fault(self, record: Record) -> None:
        """Note, once per faulty problem, how many other solutions it affects."""
        digest = record.problem_digest
        self._left[digest] -= 1
        if EVIDENCE in record.evidence and digest not in self._faulty:
            self._faulty.add(digest)
            left = self._left[digest]
            which = f"{left} other solutions" if left > 1 else "1 other solution"
            others = f"; {which} of this problem will get the same record without evaluation" if left else ""
            self._on_event(Noted(message=f"{record.reason}{others}"))

    def _explained(self, error: BaseException, rest: int) -> BaseException:
        """Return the error that ends the run if so many solutions can get no record."""
        if isinstance(error, SlotLost):
            which = f"{rest} solutions" if rest > 1 else "1 solution"
            return ExecutorError(f"{error}; fix the device, then evaluate the other {which} with --resume")
        if not isinstance(error, OSError):
            return error
        if error.errno in MACHINE_ERRORS:
            where = error.filename or self._config.run_dir
            return StoreUnavailable(f"{where}: {error.strerror}; free disk space, then continue the run with --resume")
        return error if (self._store.folder / "logs").is_dir() else removed(self._config.run_dir)

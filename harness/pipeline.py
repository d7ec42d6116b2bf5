"""From solution files to records: build ahead, judge on every slot, append each record as it finishes.

Trusted side; the conductor. Threads build and judge through an `Executor`; the calling thread alone writes records
and tells events, so that whoever calls needs no lock. It prints nothing, and imports no torch: the referees do that
meanwhile.
"""

from __future__ import annotations

import errno
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.config import RunConfig
from harness.disk import FULL_OR_BROKEN
from harness.environment import Environment
from harness.events import BuildFinished, Event, Noted, RunStarted, SolutionFinished
from harness.executors import Built, Executor, ExecutorError, Order, Slot, SlotLost
from harness.executors.ahead import Ahead
from harness.executors.faults import EVIDENCE
from harness.executors.opening import open_executor
from harness.judging import (
    Open,
    begin,
    foreseen_task,
    record_of,
    record_of_build,
    record_unbuilt,
    settle,
    where_unjudged,
)
from harness.model import Record, Status, one_line
from harness.planning import Job, identity_of, is_done, plan
from harness.runs import StoreUnavailable
from harness.schedule import Foreseen, Ready, Schedule, dealt
from harness.signature import Signatures
from harness.store import RunStore, removed
from harness.tasks import Outcome, Task

AHEAD = 32
"""Solutions at most, beside those being judged and one a builder, that are built and not judged. Each holds a few open
files, and several problems must be among them so that each slot finds one of its own."""

LOOK_AHEAD = 2
"""Solutions whose audits begin while another is judged. One takes as long as two judgements leave the GPU free."""

MOST_OPEN = 2
"""Verdicts that a slot may owe while it judges another solution: audits of those before, which take twice as long."""

MAX_SLOTS_LOST = 2
"""Slots that may be lost while they judge one solution. Then it is not tried on another: it might be the cause."""

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
    ahead: Ahead | None = None,
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
    resumed = config.resume and config.run_dir.exists()
    store = (
        RunStore.resume(config.run_dir, config=settings, asked=[identity_of(job, config) for job in jobs])
        if resumed
        else RunStore.create(config.run_dir, config=settings, environment=environment.to_json(), solutions=len(jobs))
    )
    with store:
        finished = store.finished() if config.resume else {}
        pending = [job for job in jobs if not is_done(job, config, finished)]
        del finished
        on_event(RunStarted(run_dir=config.run_dir, total=len(pending), skipped=len(jobs) - len(pending)))
        if pending:
            logs = store.folder / "logs"
            with ExitStack() as stack:
                try:
                    used = executor or stack.enter_context(open_executor(config, environment, logs, ahead))
                except BaseException:
                    if not resumed:  # the same call, once that is mended, is no second run
                        store.withdraw()
                    raise
                _Run(config, environment, store, on_event, used, pending).run()
        wanted = {job.solution.label for job in pending}
        records = tuple(record for record in store.records() if record.solution in wanted)
        wall_s = time.perf_counter() - begin
        store.note_session({"evaluated": len(pending), "skipped": len(jobs) - len(pending), "wall_s": wall_s})
    return RunSummary(run_dir=config.run_dir, records=records, skipped=len(jobs) - len(pending), wall_s=wall_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """What a thread tells the calling one."""

    event: Event | None = None
    record: Record | None = None
    slot: Slot | None = None
    lost: SlotLost | None = None
    error: BaseException | None = None
    left: str | None = None
    """The kind of thread whose last word this is."""


class _Run:
    """One run between start and end."""

    def __init__(
        self,
        config: RunConfig,
        environment: Environment,
        store: RunStore,
        on_event: Callable[[Event], None],
        executor: Executor,
        jobs: list[Job],
    ) -> None:
        self._config = config
        self._environment = environment
        self._store = store
        self._on_event = on_event
        self._executor = executor
        self._slots = list(executor.slots)
        self._builders = max(1, min(executor.builders, len(jobs)))
        self._schedule: Schedule[Job, Built] = Schedule(
            dealt(((job.problem.digest, job) for job in jobs), len(self._slots)), ahead=AHEAD + self._builders
        )
        self._messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._losses: dict[str, int] = {}
        self._signatures = Signatures(config.cache_dir, config.cache_limit_bytes)
        self._counting = threading.Lock()
        self._judging = 0
        self._done = 0
        self._total = len(jobs)
        self._lost: list[str] = []
        self._left = Counter(job.problem.digest for job in jobs)
        self._faults_told: set[str | None] = set()

    def run(self) -> None:
        """Everything to its record. Raises what ends the run."""
        running = Counter({"build": self._builders, "open": len(self._slots), "judge": len(self._slots)})
        for _ in range(self._builders):
            self._start("build", self._build_all)
        for slot in self._slots:
            self._start("open", self._open, slot)
            self._start("judge", self._judge_all, slot)
        try:
            while running["build"] or running["judge"]:
                self._heed(self._messages.get(), running)
        except KeyboardInterrupt:
            self._finish_what_runs(running)
            raise
        finally:
            self._schedule.stop()
            self._signatures.close()
            for ready in self._schedule.left_over():
                ready.built.release()
        if self._done < self._total:
            why = "; ".join(self._lost)
            raise ExecutorError(
                f"no device is left to judge {self._total - self._done} solutions ({why}); --resume does them once "
                f"that is mended"
            )

    def _finish_what_runs(self, running: Counter[str]) -> None:
        self._schedule.stop()
        if self._judging:
            several = "s" if self._judging > 1 else ""
            what = f"finishing the {self._judging} solution{several} being judged; interrupt again to end at once"
            self._on_event(Noted(message=f"interrupted: {what}"))
        deadline = time.monotonic() + GRACE_S
        while running["judge"]:
            try:
                self._heed(self._messages.get(timeout=max(0.0, deadline - time.monotonic())), running)
            except queue.Empty:
                return

    def _heed(self, message: _Message, running: Counter[str]) -> None:
        """Do what a thread asks for."""
        if message.error is not None:
            raise message.error
        if message.event is not None:
            self._on_event(message.event)
        if message.lost is not None:
            self._lost.append(str(message.lost))
            self._on_event(Noted(message=f"out of service: {message.lost}"))
            if len(self._lost) == len(self._slots):
                self._schedule.stop()
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

    def _start(self, kind: str, target: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=self._live, args=(kind, target, *arguments), name=kind, daemon=True).start()

    def _live(self, kind: str, target: Callable[..., None], *arguments: Any) -> None:
        """A thread's life: whatever it can't handle ends the run, and is raised by the calling thread."""
        try:
            target(*arguments)
        except OSError as error:
            if error.errno in MACHINE_ERRORS:
                where = error.filename or self._config.run_dir
                problem = StoreUnavailable(f"{where}: {error.strerror}; make room, then --resume continues the run")
                self._messages.put(_Message(error=problem))
            elif not (self._store.folder / "logs").is_dir():
                self._messages.put(_Message(error=removed(self._config.run_dir)))
            else:
                self._messages.put(_Message(error=error))
        except BaseException as error:
            self._messages.put(_Message(error=error))
        finally:
            self._messages.put(_Message(left=kind))

    def _build_all(self) -> None:
        while (found := self._schedule.next_build()) is not None:
            problem, job = found
            unbuilt = record_unbuilt(self._executor, job, self._config, self._where())
            if unbuilt is not None:
                self._messages.put(_Message(record=unbuilt))
                self._schedule.settled(problem, job)
                continue
            built = self._executor.build(self._order(job))
            failed = built.failure is not None
            event = BuildFinished(solution=job.solution, wall_s=built.wall_s, failed=failed)
            if failed:
                built.release()
                log_path = self._store.log_path(job.solution.label)
                record = record_of_build(job, built, self._config, self._where(), log_path)
                self._messages.put(_Message(event=event, record=record))
                self._schedule.settled(problem, job)
            else:
                self._messages.put(_Message(event=event))
                self._schedule.built(Ready(job=job, problem=problem, built=built))

    def _where(self) -> Mapping[str, Any]:
        return where_unjudged(self._slots, self._environment, self._config.device)

    def _order(self, job: Job) -> Order:
        """What to build, with what `ModelNew` is constructed and called with, as shapes, so that builds find all they
        need. Where these have to be found out, which takes seconds, the build begins with what it can meanwhile."""
        order = Order(
            source=job.solution.source,
            filename=job.solution.path.name,
            arguments=None,
            log_path=self._store.log_path(job.solution.label),
        )
        arguments = self._signatures.of(job.problem, on_miss=lambda: self._executor.expect(order))
        return replace(order, arguments=arguments)

    def _judge_all(self, slot: Slot) -> None:
        """A slot's life. A verdict that is left open is settled when more than `MOST_OPEN` are, or no next solution is
        ready."""
        waiting: deque[tuple[Ready[Job, Built], Open]] = deque()
        while True:
            ready = self._schedule.take(slot.name, wait=not waiting)
            if isinstance(ready, Foreseen):
                self._executor.prepare(slot, [self._foreseen(job) for job in ready.jobs])
                continue
            if ready is None and not waiting:
                return
            at = ready
            try:
                if ready is not None:
                    made = self._begin(slot, ready)
                    if isinstance(made, Open):
                        waiting.append((ready, made))
                    else:
                        self._finish(slot, ready, made)
                while len(waiting) > (0 if ready is None else MOST_OPEN):
                    at, held = waiting[0]
                    record = settle(self._executor, slot, held, self._config)
                    waiting.popleft()
                    self._finish(slot, at, record)
            except SlotLost as lost:
                for other, _ in waiting:
                    if other is not at:
                        self._count(-1)
                        self._schedule.give_back(slot.name, other)
                assert at is not None
                self._lose(slot, at, lost)
                return

    def _foreseen(self, job: Job) -> Task:
        return foreseen_task(job, self._config, self._store.log_path(job.solution.label))

    def _open(self, slot: Slot) -> None:
        """Wait until the slot can begin: what is to be judged first is chosen then, knowing all that was built
        meanwhile. The run doesn't wait for this, neither at its end nor where it is interrupted."""
        try:
            self._executor.await_slot(slot)
        finally:
            self._schedule.open(slot.name)

    def _count(self, more: int) -> None:
        """So many more solutions are being judged."""
        with self._counting:
            self._judging += more

    def _begin(self, slot: Slot, ready: Ready[Job, Built]) -> Record | Open:
        self._count(1)
        log_path = self._store.log_path(ready.job.solution.label)
        ahead = [
            (coming.job, coming.built, self._store.log_path(coming.job.solution.label))
            for coming in self._schedule.upcoming(slot.name, LOOK_AHEAD)
        ]
        return begin(self._executor, slot, ready.job, ready.built, self._config, log_path, ahead)

    def _finish(self, slot: Slot, ready: Ready[Job, Built], record: Record) -> None:
        self._count(-1)
        ready.built.release()
        self._messages.put(_Message(record=record, slot=slot))
        self._schedule.judged()

    def _lose(self, slot: Slot, ready: Ready[Job, Built], lost: SlotLost) -> None:
        """The slot gives up; its solution goes to another, unless it took several with it."""
        label = ready.job.solution.label
        self._count(-1)
        with self._counting:
            self._losses[label] = self._losses.get(label, 0) + 1
            often = self._losses[label] >= MAX_SLOTS_LOST
        if often:
            reason = one_line(f"{MAX_SLOTS_LOST} devices went out of service while they judged it: {lost}")
            outcome = Outcome(status=Status.harness_error, reason=reason)
            wall_s = ready.built.wall_s
            record = record_of(ready.job, outcome, ready.built, self._config, slot.environment, wall_s=wall_s)
            ready.built.release()
            self._messages.put(_Message(record=record, slot=slot))
            self._schedule.judged()
        else:
            self._schedule.give_back(slot.name, ready)
        self._messages.put(_Message(lost=lost))

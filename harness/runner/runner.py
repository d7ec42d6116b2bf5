"""Evaluate solutions on threads: `Runner.submit` returns the future of each.

Trusted side. It serves runs over files, the Python API and the server. Its threads are builders, and one judge
per slot. Prints nothing and imports no torch.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.record import Record
from harness.core.status import Status, one_line
from harness.core.task import Outcome
from harness.referee.problem.signature import Signatures
from harness.referee.small_sizes import SmallSizes
from harness.runner.events import BuildFinished, Event, Noted, SolutionFinished
from harness.runner.executors import BuildRequest, Built, Executor, ExecutorError, Slot, SlotLost
from harness.runner.executors.problem_faults import EVIDENCE
from harness.runner.plan import PendingSolution
from harness.runner.record_builder import (
    OpenVerdict,
    begin,
    foreseen_task,
    record_of,
    record_of_build,
    record_unbuilt,
    settle,
    where_unjudged,
    with_small_sizes,
)
from harness.runner.scheduler import BuiltSolution, ForeseenSolution, Schedule, dealt

if TYPE_CHECKING:
    from harness.runner.cascade import Cascade

T = TypeVar("T")
Notify = Callable[[Event], None]
AHEAD = 32
"""Limit of solutions that are built and not evaluated yet, besides the current ones and one per builder.

Each holds a few open files. Several problems must be among them, so that each slot finds one of its own.
"""

LOOK_AHEAD = 2
"""Solutions whose audits start while another solution is evaluated.

An audit needs about the time that two evaluations leave the GPU idle.
"""

MOST_OPEN = 2
"""Verdicts that a slot may leave open while it evaluates another solution; their audits take about twice as long."""

POLL_S = 0.05
"""How often an idle slot checks whether an open verdict is ready, in seconds."""

MAX_SLOTS_LOST = 2
"""After this many slots were lost with one solution, it is not tried again: it might be the cause."""


@dataclass(eq=False, slots=True)
class _Taken:
    """A solution that a slot has taken, with its verdict if that is open."""

    ready: BuiltSolution[PendingSolution, Built]
    verdict: OpenVerdict | None = None


class Runner(Generic[T]):
    """Builds and evaluates submitted solutions. Safe to use from several threads.

    A future runs once the build of its solution starts, and can be cancelled before. It has an exception only if there
    is no record; if that is a `SlotLost`, no slot is left.

    Args:
        executor: Builds and evaluates solutions; `end` closes it.
        config: Settings of the run.
        environment: Facts about this machine.
        deliver: Turns a solution and its `SolutionFinished` into the result of the future, on a thread of the runner.
        once: Whether its solutions are those of one run: its threads end with the `last` ones, and slots change
            problems as rarely as possible.
        cascade: Judges each solution before its build; `close` and `end` close it, too.
    """

    def __init__(
        self,
        executor: Executor,
        config: RunConfig,
        environment: Environment,
        deliver: Callable[[PendingSolution, SolutionFinished], T],
        *,
        once: bool = False,
        cascade: Cascade | None = None,
    ) -> None:
        self._executor, self._config, self._environment = executor, config, environment
        self._deliver, self._once, self._cascade = deliver, once, cascade
        self._slots = list(executor.slots)
        self._signatures = Signatures(config.cache_dir, config.cache_limit_bytes)
        self._small_sizes = SmallSizes(config.cache_dir, config.cache_limit_bytes)
        builders = max(1, executor.builders)
        self._schedule: Schedule[PendingSolution, Built] = Schedule(
            (), ahead=AHEAD + builders, more=True, slots=len(self._slots), fair=not once
        )
        self._run_key = secrets.token_hex(32)
        """Key of the secret shapes of a run."""
        self._lock = threading.Lock()
        self._pending: dict[PendingSolution, tuple[Future[T], Notify]] = {}
        """The future of each solution without a result. Only the thread that removes it here settles it."""
        self._lost: list[str] = []
        self._over: BaseException | None = None
        """Why nothing can be evaluated any more."""
        self.whole = True
        """Whether no slot was lost and no problem found at fault; an executor retries neither."""
        lives = [self._build_all] * builders + [partial(self._judge_all, slot) for slot in self._slots]
        self._threads = [threading.Thread(target=self._live, args=(life,), daemon=True) for life in lives]
        for thread in self._threads:
            thread.start()

    @property
    def usable(self) -> bool:
        """Whether it can evaluate: it is not closed, a slot is left, and no thread failed."""
        return self._over is None

    @property
    def calls_back(self) -> bool:
        """Whether the caller is a thread of this runner: in a future's callback.

        Such a caller must not wait for the runner: other threads may wait for it.
        """
        return threading.current_thread() in self._threads

    def submit(
        self, works: Sequence[PendingSolution], notify: Notify = lambda event: None, *, last: bool = True
    ) -> list[Future[T]]:
        """Queue solutions, and return the future of each.

        Args:
            works: The solutions.
            notify: Gets their `BuildFinished` events and notes for the user, on a thread of the runner. It is dropped
                with the last of these futures.
            last: Whether no solutions of the run follow; only heeded with `once`.
        """
        if self._config.shapes:
            # Solutions of one call or run are comparable; later ones may be written by readers of earlier results.
            key = self._run_key if self._once else secrets.token_hex(32)
            for work in works:
                work.job = replace(work.job, shape_key=work.job.shape_key or key)
        futures: list[Future[T]] = [Future() for _ in works]
        with self._lock:
            if (over := self._over) is None:
                self._pending |= {work: (future, notify) for work, future in zip(works, futures, strict=True)}
        for work, future in zip(works, futures, strict=True):
            if over is not None:
                future.set_exception(over)
            else:
                future.add_done_callback(partial(self._forget, work))
        order = dealt(((work.job.place, work) for work in works), len(self._slots))
        self._schedule.add(order, last=self._once and last)
        return futures

    def cancel(self, futures: Collection[Future[T]]) -> int:
        """Cancel those of these solutions whose evaluation has not begun.

        Builds are released, also one that is under way.

        Returns:
            How many go on, because they are under evaluation.
        """
        wanted = set(futures)
        with self._lock:
            works = {work for work, (future, _) in self._pending.items() if future in wanted}
        removed, built = self._schedule.withdraw(works)
        for ready in built:
            ready.built.release()
        for work in removed:
            self._fail(work, CancelledError(), cancel=True)
        return len(works) - len(removed)

    def close(self) -> None:
        """Cancel the futures that do not run, and fail those that do. Idempotent.

        Evaluations under way go on, but nothing is delivered.
        """
        self._signatures.close()
        self._small_sizes.close()
        self._fail_all(ExecutorError("the harness was closed before this solution was evaluated"), cancel=True)
        if self._cascade is not None:
            self._cascade.close()

    def end(self) -> None:
        """Close this and the executor, and wait for the threads.

        May be called again, also after an interrupted call. Does not wait for the calling thread (in a callback).
        """
        self.close()
        if self._cascade is not None:
            self._cascade.end()
        self._executor.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _live(self, life: Callable[[], None]) -> None:
        """Run one thread."""
        try:
            life()
        except BaseException as error:
            self._fail_all(error)

    def _build_all(self) -> None:
        while (following := self._schedule.next_build()) is not None:
            place, work = following
            built = None
            try:
                if self._starts(work):
                    built = self._build(work)
            except BaseException as error:
                self._fail(work, error)
            if built is None:
                self._schedule.settled(place, work)
            elif not self._schedule.built(BuiltSolution(job=work, problem=place, built=built)):
                built.release()

    def _build(self, work: PendingSolution) -> Built | None:
        """Build a solution; return None if its record is made already."""
        job = work.job
        unbuilt = record_unbuilt(self._executor, job, self._config, self._where())
        if unbuilt is None:
            job = work.job = with_small_sizes(job, self._small_sizes)
            unbuilt = record_unbuilt(self._executor, job, self._config, self._where())
        if unbuilt is None and self._cascade is not None:
            unbuilt = self._cascade.convicts(work, self._where(), partial(self._notify, work=work))
            job = work.job
        if unbuilt is not None:
            self._finish(work, unbuilt)
            return None
        built = self._executor.build(self._order(work))
        failed = built.failure is not None
        self._notify(BuildFinished(solution=job.solution, wall_s=built.wall_s, failed=failed), work)
        if built.failure is None:
            return built
        if built.failure.status is Status.bad_constructor and not self._signatures.constructs(job.problem):
            return built  # probably the problem's fault: the referee verifies and reports it
        built.release()
        self._finish(work, record_of_build(job, built, self._config, self._where(), work.log_path))
        return None

    def _where(self) -> Mapping[str, Any]:
        return where_unjudged(self._slots, self._environment, self._config.device)

    def _order(self, work: PendingSolution) -> BuildRequest:
        """Return the build request, with the shapes that `ModelNew` and `forward` get.

        If the shapes are not cached, finding them takes seconds. Meanwhile the build starts with what the source shows.
        """
        solution = work.job.solution
        order = BuildRequest(
            source=solution.source, filename=solution.path.name, arguments=None, log_path=work.log_path
        )
        arguments = self._signatures.of(work.job.problem, on_miss=lambda: self._executor.expect(order))
        return replace(order, arguments=arguments)

    def _judge_all(self, slot: Slot) -> None:
        """Evaluate on a slot until nothing is left or the slot is lost.

        A lost slot gives its solutions to the others, except one that was lost with too many slots.
        """
        taken: list[_Taken] = []
        try:
            self._executor.await_slot(slot)  # so that it chooses among everything built meanwhile
            self._judge_on(slot, taken)
        except BaseException as error:  # this thread ends, so later solutions must not wait for the slot
            expected = isinstance(error, SlotLost)
            why = str(error) if expected else one_line(f"{slot.title}: {type(error).__name__}: {error}")
            self.whole = False
            self._notify(Noted(message=f"out of service: {why}"))
            self._schedule.leave(slot.name)
            for each in reversed(taken):
                self._give_up(slot, each.ready, why)
            with self._lock:
                self._lost.append(why)
                all_lost = len(self._lost) == len(self._slots)
            if all_lost:
                self._fail_all(SlotLost(f"no device is left: {'; '.join(self._lost)}"))

    def _judge_on(self, slot: Slot, taken: list[_Taken]) -> None:
        """Evaluate solutions; those without a record are in `taken`.

        An open verdict is settled when it is ready, when more than `MOST_OPEN` are open, or when no solution follows.
        Raises `SlotLost`.
        """
        while True:
            ready = self._schedule.take(slot.name, within_s=POLL_S if taken else None)
            if isinstance(ready, ForeseenSolution):
                with suppress(Exception):  # an error here comes again when the solution itself is evaluated
                    for work in ready.jobs:
                        work.job = with_small_sizes(work.job, self._small_sizes)
                    tasks = [
                        foreseen_task(work.job, self._config, work.log_path)
                        for work in ready.jobs
                        if work.job.failure is None
                    ]
                    if tasks:
                        self._executor.prepare(slot, tasks)
                continue
            if ready is None and not taken:
                return
            if ready is not None:
                taken.append(_Taken(ready))
                self._judge(slot, taken, taken[-1])
            for each in list(taken):
                if each.verdict is not None and self._executor.due(slot, each.verdict.task):
                    self._judge(slot, taken, each)
            while len(taken) > MOST_OPEN or (taken and ready is None and not self._schedule.to_come):
                self._judge(slot, taken, taken[0])

    def _judge(self, slot: Slot, taken: list[_Taken], each: _Taken) -> None:
        """Evaluate a solution, or wait for its open verdict. Raises `SlotLost`.

        It stays in `taken` if its verdict is open or the slot is lost.
        """
        work = each.ready.job
        try:
            if each.verdict is not None:
                result: Record | OpenVerdict = settle(self._executor, slot, each.verdict, self._config)
            else:
                upcoming = self._schedule.upcoming(slot.name, LOOK_AHEAD)
                ahead = [(coming.job.job, coming.built, coming.job.log_path) for coming in upcoming]
                result = begin(self._executor, slot, work.job, each.ready.built, self._config, work.log_path, ahead)
        except SlotLost:
            work.losses += 1
            raise
        except BaseException as error:
            taken.remove(each)
            each.ready.built.release()
            self._fail(work, error)
            self._schedule.judged()
            return
        if isinstance(result, OpenVerdict):
            each.verdict = result
            return
        taken.remove(each)
        self._conclude(slot, each.ready, result)

    def _conclude(self, slot: Slot, ready: BuiltSolution[PendingSolution, Built], record: Record) -> None:
        """Deliver the record of a solution that a slot has evaluated."""
        ready.built.release()
        self._finish(ready.job, record, slot)
        self._schedule.judged()

    def _give_up(self, slot: Slot, ready: BuiltSolution[PendingSolution, Built], why: str) -> None:
        """Give a solution of a lost slot to another slot.

        If too many slots were lost with it, it gets a `harness_error`.
        """
        if ready.job.losses >= MAX_SLOTS_LOST:
            reason = one_line(f"{MAX_SLOTS_LOST} devices failed while they evaluated this solution: {why}")
            outcome, wall_s = Outcome(status=Status.harness_error, reason=reason), ready.built.wall_s
            record = record_of(ready.job.job, outcome, ready.built, self._config, slot.environment, wall_s=wall_s)
            self._conclude(slot, ready, record)
        elif not self._schedule.give_back(ready):
            ready.built.release()

    def _starts(self, work: PendingSolution) -> bool:
        """Mark the future of a solution as running; return False if it was cancelled."""
        with self._lock:
            future, _ = self._pending.get(work, (None, None))
            if future is None or future.set_running_or_notify_cancel():
                return future is not None
            del self._pending[work]
            return False

    def _claim(self, work: PendingSolution) -> tuple[Future[T] | None, Notify | None]:
        """Take the future of a solution to settle it; None if it is taken already."""
        with self._lock:
            return self._pending.pop(work, (None, None))

    def _forget(self, work: PendingSolution, _: Future[T]) -> None:
        """Drop a future that its caller has cancelled, and notify its waiters."""
        future, _notify = self._claim(work)
        if future is not None:
            future.set_running_or_notify_cancel()  # otherwise `as_completed` waits forever

    def _finish(self, work: PendingSolution, record: Record, slot: Slot | None = None) -> None:
        """Deliver a record as the result of its future."""
        self.whole = self.whole and EVIDENCE not in record.evidence
        future, _notify = self._claim(work)  # the caller may need what `notify` refers to until the end of `deliver`
        if future is None:
            return
        try:
            event = SolutionFinished(record=record, slot=None if slot is None else slot.title)
            result = self._deliver(work, event)
        except BaseException as error:
            _settle(future.set_exception, error)
        else:
            _settle(future.set_result, result)

    def _fail(self, work: PendingSolution, error: BaseException, *, cancel: bool = False) -> None:
        """Settle the future of a solution without a record.

        `cancel` cancels it instead if it does not run.
        """
        future, _notify = self._claim(work)
        if future is None:
            return
        if cancel:
            _settle(future.cancel)
        if future.running() or future.set_running_or_notify_cancel():
            _settle(future.set_exception, error)

    def _fail_all(self, error: BaseException, *, cancel: bool = False) -> None:
        """Evaluate nothing more, for this reason."""
        with self._lock:
            self._over = self._over or error
            works = list(self._pending)
        for ready in self._schedule.stop():
            ready.built.release()
        for work in works:
            self._fail(work, error, cancel=cancel)

    def _notify(self, event: Event, work: PendingSolution | None = None) -> None:
        """Send an event of one solution to its submitter, any other event to all."""
        with self._lock:
            works = self._pending.keys() if work is None else self._pending.keys() & {work}
            receivers = {self._pending[each][1] for each in works}
        for notify in receivers:
            notify(event)


def _settle(tell: Callable[..., object], *result: object) -> None:
    """Settle a future; an exception in its callbacks must not end this thread."""
    with suppress(BaseException):
        tell(*result)

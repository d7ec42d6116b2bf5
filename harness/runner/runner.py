"""The threads of a run: builders, and one judge per slot.

Trusted side. They take solutions from source to record, for runs over files and for the Python API. Events go to a
`Listener`, from these threads. Prints nothing and imports no torch.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.record import Record
from harness.core.status import Status, one_line
from harness.core.task import Outcome, Task
from harness.referee.problem.signature import Signatures
from harness.runner.executors import BuildRequest, Built, Executor, Slot, SlotLost
from harness.runner.listeners import Kind, Listener, PendingSolution
from harness.runner.record_builder import (
    OpenVerdict,
    begin,
    foreseen_task,
    record_of,
    record_of_build,
    record_unbuilt,
    settle,
    where_unjudged,
)
from harness.runner.scheduler import BuiltSolution, ForeseenSolution, Schedule

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


class Runner:
    """Runs the solutions of `schedule` through an executor, which it does not close.

    Call `start` first and `stop` in the end.
    """

    def __init__(
        self,
        executor: Executor,
        config: RunConfig,
        environment: Environment,
        schedule: Schedule[PendingSolution, Built],
        listener: Listener,
        *,
        builders: int,
    ) -> None:
        self._executor, self._config, self._environment = executor, config, environment
        self._schedule, self._listener = schedule, listener
        self._slots = list(executor.slots)
        self._signatures = Signatures(config.cache_dir, config.cache_limit_bytes)
        self._counting = threading.Lock()
        self._judging = 0
        self._lost: list[str] = []
        self._closed = False
        lives: list[tuple[Kind, Callable[..., None], tuple[Any, ...]]] = [("build", self._build_all, ())] * builders
        for slot in self._slots:
            lives += [("open", self._open, (slot,)), ("judge", self._judge_all, (slot,))]
        self.threads: tuple[tuple[Kind, threading.Thread], ...] = tuple(
            (kind, threading.Thread(target=self._live, args=(kind, target, *arguments), name=kind, daemon=True))
            for kind, target, arguments in lives
        )
        """All threads with their kinds; `Listener.left` is called once for each."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """The kind of each thread."""
        return [kind for kind, _ in self.threads]

    @property
    def judging(self) -> int:
        """Number of solutions under evaluation."""
        return self._judging

    @property
    def lost(self) -> str:
        """Why no slot is left; empty as long as one is."""
        with self._counting:
            return "; ".join(self._lost) if len(self._lost) == len(self._slots) else ""

    def start(self) -> None:
        for _, thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Start nothing new; current evaluations go on. Idempotent."""
        self._schedule.stop()

    def close(self) -> None:
        """Release what was built and will not be evaluated; call it after `stop`.

        Also covers builds that threads still deliver. Signatures are not looked up any more. Idempotent.
        """
        self._signatures.close()
        self._closed = True
        self._let_go()

    def join(self) -> None:
        """Wait for the threads; call it after `close`.

        Does not wait for threads that only wait until a slot opens, nor for the calling thread (a listener may call
        this).
        """
        for kind, thread in self.threads:
            if kind != "open" and thread is not threading.current_thread():
                thread.join()

    def _let_go(self) -> None:
        for ready in self._schedule.left_over():
            ready.built.release()

    def _live(self, kind: Kind, target: Callable[..., None], *arguments: Any) -> None:
        """Run one thread."""
        try:
            target(*arguments)
        except BaseException as error:
            self._listener.failed(None, error)
        finally:
            if self._closed:
                self._let_go()
            self._listener.left(kind)

    def _build_all(self) -> None:
        while (found := self._schedule.next_build()) is not None:
            place, work = found
            try:
                built = self._build(work) if self._listener.wanted(work) else None
            except BaseException as error:
                self._schedule.settled(place, work)
                self._listener.failed(work, error)
                continue
            if built is None:
                self._schedule.settled(place, work)
            elif not self._schedule.built(BuiltSolution(job=work, problem=place, built=built)):
                built.release()

    def _build(self, work: PendingSolution) -> Built | None:
        """Build a solution; return None if its record is made already."""
        job = work.job
        unbuilt = record_unbuilt(self._executor, job, self._config, self._where())
        if unbuilt is not None:
            self._listener.finished(work, unbuilt, None)
            return None
        built = self._executor.build(self._order(work))
        self._listener.built(work, built)
        if built.failure is None:
            return built
        if built.failure.status is Status.bad_constructor and not self._signatures.constructs(job.problem):
            return built  # probably the problem's fault: the referee verifies and reports it
        built.release()
        record = record_of_build(job, built, self._config, self._where(), work.log_path)
        self._listener.finished(work, record, None)
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

    def _open(self, slot: Slot) -> None:
        """Wait until the slot can start; then it chooses among everything built meanwhile.

        Neither the end of a run nor an interrupt waits for this thread.
        """
        try:
            self._executor.await_slot(slot)
        finally:
            self._schedule.open(slot.name)

    def _judge_all(self, slot: Slot) -> None:
        """Evaluate on a slot until nothing is left or the slot is lost.

        A lost slot gives its open solutions back to the others.
        """
        waiting: deque[tuple[BuiltSolution[PendingSolution, Built], OpenVerdict]] = deque()
        try:
            self._judge_on(slot, waiting)
        except BaseException as error:
            for other, _ in reversed(waiting):
                self._count(-1)
                self._schedule.give_back(slot.name, other)
            if isinstance(error, SlotLost):
                self._lose(slot, error)
            else:  # this thread ends, so later solutions must not wait for the slot
                why = one_line(f"{slot.title}: {type(error).__name__}: {error}")
                self._lose(slot, SlotLost(why), error)

    def _judge_on(self, slot: Slot, waiting: deque[tuple[BuiltSolution[PendingSolution, Built], OpenVerdict]]) -> None:
        """Evaluate solutions; open verdicts are kept in `waiting`.

        An open verdict is settled when it is ready, when more than `MOST_OPEN` are open, or when no solution follows.
        Raises `SlotLost`.
        """
        while True:
            ready = self._schedule.take(slot.name, within_s=POLL_S if waiting else None)
            if isinstance(ready, ForeseenSolution):
                with suppress(Exception):  # an error here comes again when the solution itself is evaluated
                    self._executor.prepare(slot, [self._foreseen(work) for work in ready.jobs])
                continue
            if ready is None and not waiting:
                return
            if ready is not None and (made := self._begin(slot, ready)) is not None:
                waiting.append((ready, made))
            self._settle_due(slot, waiting)
            while len(waiting) > MOST_OPEN or (waiting and ready is None and not self._schedule.to_come):
                self._settle(slot, *waiting.popleft())

    def _foreseen(self, work: PendingSolution) -> Task:
        return foreseen_task(work.job, self._config, work.log_path)

    def _begin(self, slot: Slot, ready: BuiltSolution[PendingSolution, Built]) -> OpenVerdict | None:
        """Evaluate a solution; return its open verdict, or None if it is done.

        Raises `SlotLost`, after the solution was given back.
        """
        work = ready.job
        self._count(1)
        try:
            ahead = [
                (coming.job.job, coming.built, coming.job.log_path)
                for coming in self._schedule.upcoming(slot.name, LOOK_AHEAD)
            ]
            made = begin(self._executor, slot, work.job, ready.built, self._config, work.log_path, ahead)
        except SlotLost as lost:
            self._give_up(slot, ready, lost)
            raise
        except BaseException as error:
            self._drop(ready, error)
            return None
        if isinstance(made, OpenVerdict):
            return made
        self._finish(slot, ready, made)
        return None

    def _settle_due(
        self, slot: Slot, waiting: deque[tuple[BuiltSolution[PendingSolution, Built], OpenVerdict]]
    ) -> None:
        """Settle and remove the verdicts that are ready. Raises `SlotLost`."""
        for ready, held in list(waiting):
            if self._executor.due(slot, held.task):
                waiting.remove((ready, held))
                self._settle(slot, ready, held)

    def _settle(self, slot: Slot, ready: BuiltSolution[PendingSolution, Built], held: OpenVerdict) -> None:
        """Wait for an open verdict. Raises `SlotLost`, after the solution was given back."""
        try:
            record = settle(self._executor, slot, held, self._config)
        except SlotLost as lost:
            self._give_up(slot, ready, lost)
            raise
        except BaseException as error:
            self._drop(ready, error)
        else:
            self._finish(slot, ready, record)

    def _count(self, more: int) -> None:
        """Change the number of solutions under evaluation."""
        with self._counting:
            self._judging += more

    def _finish(self, slot: Slot, ready: BuiltSolution[PendingSolution, Built], record: Record) -> None:
        self._count(-1)
        ready.built.release()
        self._listener.finished(ready.job, record, slot)
        self._schedule.judged()

    def _drop(self, ready: BuiltSolution[PendingSolution, Built], error: BaseException) -> None:
        self._count(-1)
        ready.built.release()
        self._listener.failed(ready.job, error)
        self._schedule.judged()

    def _give_up(self, slot: Slot, ready: BuiltSolution[PendingSolution, Built], lost: SlotLost) -> None:
        """Give the solution of a lost slot to another slot.

        If too many slots were lost with it, it gets a `harness_error`.
        """
        work = ready.job
        work.losses += 1
        if work.losses < MAX_SLOTS_LOST:
            self._count(-1)
            self._schedule.give_back(slot.name, ready)
            return
        reason = one_line(f"{MAX_SLOTS_LOST} devices failed while they evaluated this solution: {lost}")
        outcome = Outcome(status=Status.harness_error, reason=reason)
        wall_s = ready.built.wall_s
        record = record_of(work.job, outcome, ready.built, self._config, slot.environment, wall_s=wall_s)
        self._finish(slot, ready, record)

    def _lose(self, slot: Slot, lost: SlotLost, cause: BaseException | None = None) -> None:
        self._schedule.leave(slot.name)
        with self._counting:
            self._lost.append(str(lost))
            none_left = len(self._lost) == len(self._slots)
        if none_left:
            self._schedule.stop()
        self._listener.lost(lost, cause)

"""The threads that take solutions from source to record: builders ahead, one judge a slot.

Control layer, trusted side. Shared by whoever runs solutions: the pipeline over files, the Python API as they arrive.
What becomes of them is told to a `Listener`, from these threads. It prints nothing, and imports no torch.
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
"""Solutions at most, beside those being judged and one a builder, that are built and not judged. Each holds a few open
files, and several problems must be among them so that each slot finds one of its own."""

LOOK_AHEAD = 2
"""Solutions whose audits begin while another is judged. One takes as long as two judgements leave the GPU free."""

MOST_OPEN = 2
"""Verdicts that a slot may owe while it judges another solution: audits of those before, which take twice as long."""

POLL_S = 0.05
"""How often a slot that has nothing to judge asks whether a verdict that it owes is due."""

MAX_SLOTS_LOST = 2
"""Slots that may be lost while they judge one solution. Then it is not tried on another: it might be the cause."""


class Runner:
    """Runs what `schedule` has through an executor, which stays open. `start` it, and `stop` it in the end."""

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
        """All of them, by kind; `left` is told as often."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """Of its threads."""
        return [kind for kind, _ in self.threads]

    @property
    def judging(self) -> int:
        """Solutions being judged."""
        return self._judging

    @property
    def lost(self) -> str:
        """Why no slot is left; empty as long as there is one."""
        with self._counting:
            return "; ".join(self._lost) if len(self._lost) == len(self._slots) else ""

    def start(self) -> None:
        for _, thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Begin nothing any more; what is being judged comes to its end. Idempotent."""
        self._schedule.stop()

    def close(self) -> None:
        """After `stop`: let go of what was built and will not be judged, also of what threads still bring. Nobody finds
        out any more what builds would need to know. Idempotent.
        """
        self._signatures.close()
        self._closed = True
        self._let_go()

    def join(self) -> None:
        """After `close`: wait for its threads, but for those that only wait until a slot can begin, and for that which
        calls, such as by a listener.
        """
        for kind, thread in self.threads:
            if kind != "open" and thread is not threading.current_thread():
                thread.join()

    def _let_go(self) -> None:
        for ready in self._schedule.left_over():
            ready.built.release()

    def _live(self, kind: Kind, target: Callable[..., None], *arguments: Any) -> None:
        """A thread's life."""
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
        """What is to be judged; None where that is settled."""
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
            return built  # the problem's fault, it seems: the referee finds out and says so
        built.release()
        record = record_of_build(job, built, self._config, self._where(), work.log_path)
        self._listener.finished(work, record, None)
        return None

    def _where(self) -> Mapping[str, Any]:
        return where_unjudged(self._slots, self._environment, self._config.device)

    def _order(self, work: PendingSolution) -> BuildRequest:
        """What to build, with what `ModelNew` is constructed and called with, as shapes, so that builds find all they
        need. Where these have to be found out, which takes seconds, the build begins with what it can meanwhile.
        """
        solution = work.job.solution
        order = BuildRequest(
            source=solution.source, filename=solution.path.name, arguments=None, log_path=work.log_path
        )
        arguments = self._signatures.of(work.job.problem, on_miss=lambda: self._executor.expect(order))
        return replace(order, arguments=arguments)

    def _open(self, slot: Slot) -> None:
        """Wait until the slot can begin: what is to be judged first is chosen then, knowing all that was built
        meanwhile. Nobody waits for this, neither at the end nor at an interrupt.
        """
        try:
            self._executor.await_slot(slot)
        finally:
            self._schedule.open(slot.name)

    def _judge_all(self, slot: Slot) -> None:
        """A slot's life, until there is nothing more to judge, or it is lost: what it owed goes to others then."""
        waiting: deque[tuple[BuiltSolution[PendingSolution, Built], OpenVerdict]] = deque()
        try:
            self._judge_on(slot, waiting)
        except BaseException as error:
            for other, _ in reversed(waiting):
                self._count(-1)
                self._schedule.give_back(slot.name, other)
            if isinstance(error, SlotLost):
                self._lose(slot, error)
            else:  # nobody judges on this slot any more, and what comes later is not to wait for it
                why = one_line(f"{slot.title}: {type(error).__name__}: {error}")
                self._lose(slot, SlotLost(why), error)

    def _judge_on(self, slot: Slot, waiting: deque[tuple[BuiltSolution[PendingSolution, Built], OpenVerdict]]) -> None:
        """A verdict that is left open is among `waiting`, and settled when it is due, more than `MOST_OPEN` are open,
        or no next solution will come. Raises `SlotLost`.
        """
        while True:
            ready = self._schedule.take(slot.name, within_s=POLL_S if waiting else None)
            if isinstance(ready, ForeseenSolution):
                with suppress(Exception):  # what goes wrong with a hint goes wrong again in that one's own turn
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
        """Judge it: what is left to `_settle`, or None. Raises `SlotLost`, and gives it back before."""
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
        """Settle those whose audits are over, and take them off. Raises `SlotLost`."""
        for ready, held in list(waiting):
            if self._executor.due(slot, held.task):
                waiting.remove((ready, held))
                self._settle(slot, ready, held)

    def _settle(self, slot: Slot, ready: BuiltSolution[PendingSolution, Built], held: OpenVerdict) -> None:
        """Wait for the verdict that was left open. Raises `SlotLost`, and gives it back before."""
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
        """So many more solutions are being judged."""
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
        """The slot is lost; its solution goes to another, unless it took several with it."""
        work = ready.job
        work.losses += 1
        if work.losses < MAX_SLOTS_LOST:
            self._count(-1)
            self._schedule.give_back(slot.name, ready)
            return
        reason = one_line(f"{MAX_SLOTS_LOST} devices went out of service while they judged it: {lost}")
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

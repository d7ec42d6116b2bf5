"""The threads behind `Harness`: builders ahead, one judge a slot, results as futures.

Outside layer; trusted side. Unlike the pipeline, work arrives while it runs. Builds run ahead only so far, since each
holds open files; a slot prefers solutions to the problem that its referee has ready.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.api.result import Result
from harness.config import RunConfig
from harness.environment import Environment
from harness.executors import Built, Executor, ExecutorError, Order, Slot, SlotLost
from harness.judging import judge, record_of_build, record_unbuilt, where_unjudged
from harness.model import Record
from harness.planning import Job
from harness.schedule import choose
from harness.signature import Signatures

AHEAD = 32
"""Solutions built and not yet judged, beyond one a builder."""

MAX_SLOTS_LOST = 2
"""Slots that may be lost with one solution, which might be the cause; then it is given up."""


@dataclass(eq=False, slots=True, kw_only=True)
class Work:
    """One solution on its way. `log_path` is its own; `built` is there once it is."""

    job: Job
    log_path: Path
    future: Future[Result]
    built: Built | None = None
    has_room: bool = False
    losses: int = 0


class Flow:
    """Runs what it is given through an executor, which it closes at the end. Safe for threads."""

    def __init__(
        self,
        executor: Executor,
        config: RunConfig,
        environment: Environment,
        deliver: Callable[[Work, Record], Result],
    ) -> None:
        self._executor, self._config, self._environment, self._deliver = executor, config, environment, deliver
        self._room = threading.BoundedSemaphore(AHEAD + executor.builders)
        self._changed = threading.Condition(threading.RLock())
        self._ready: list[Work] = []
        self._at: dict[str, Hashable] = {}
        self._unsettled: set[Work] = set()
        self._closing = False
        self._lost: list[str] = []
        self._signatures = Signatures(config.cache_dir, config.cache_limit_bytes)
        self._builders = ThreadPoolExecutor(max(1, executor.builders), thread_name_prefix="harness-build")
        self._judges = [
            threading.Thread(target=self._judge_all, args=(slot,), name=f"harness-judge-{slot.name}", daemon=True)
            for slot in executor.slots
        ]
        for thread in self._judges:
            thread.start()

    def submit(self, work: Work) -> None:
        """Its future is settled once it is judged. Raises `RuntimeError` after `close`."""
        with self._changed:
            self._unsettled.add(work)
        work.future.add_done_callback(lambda _: self._forget(work))
        try:
            self._builders.submit(self._build, work)
        except RuntimeError:
            work.future.cancel()
            raise

    def close(self) -> None:
        """Cancel what has not begun, end every process; what was being judged gets an exception. Idempotent."""
        with self._changed:
            self._closing = True
            waiting, self._ready = self._ready, []
            self._changed.notify_all()
        for work in waiting:
            self._fail(work, ExecutorError("the Harness was closed before this solution was judged"))
        self._builders.shutdown(wait=False, cancel_futures=True)
        self._executor.close()
        self._signatures.close()
        for thread in self._judges:
            thread.join()
        self._builders.shutdown(wait=True)
        for work in list(self._unsettled):
            if not work.future.cancel():
                self._fail(work, ExecutorError("the Harness was closed before this solution was judged"))

    def _forget(self, work: Work) -> None:
        with self._changed:
            self._unsettled.discard(work)

    def _build(self, work: Work) -> None:
        if not work.future.set_running_or_notify_cancel():
            return
        try:
            unbuilt = record_unbuilt(self._executor, work.job, self._config, self._where())
            if unbuilt is not None:
                self._finish(work, unbuilt)
                return
            self._room.acquire()
            work.has_room = True
            with self._changed:
                self._check_open()
            work.built = self._executor.build(self._order(work))
            with self._changed:
                self._check_open()  # what a killed builder says is no verdict
            if work.built.failure is not None:
                self._finish(work, record_of_build(work.job, work.built, self._config, self._where(), work.log_path))
                return
            with self._changed:
                self._check_open()
                self._ready.append(work)
                self._changed.notify_all()
        except BaseException as error:
            self._fail(work, self._explained(error))

    def _explained(self, error: BaseException) -> BaseException:
        """Whatever goes wrong while the processes are being ended goes wrong because of that."""
        if not self._closing or isinstance(error, ExecutorError):
            return error
        return ExecutorError(f"the Harness was closed before this solution was judged ({type(error).__name__})")

    def _check_open(self) -> None:
        """Raise where nobody would judge any more."""
        if self._closing:
            raise ExecutorError("the Harness was closed before this solution was judged")
        if len(self._lost) == len(self._judges):
            raise ExecutorError(f"no device is left: {'; '.join(self._lost)}")

    def _where(self) -> Mapping[str, Any]:
        return where_unjudged(self._executor.slots, self._environment, self._config.device)

    def _order(self, work: Work) -> Order:
        order = Order(
            source=work.job.solution.source,
            filename=work.job.solution.path.name,
            arguments=None,
            log_path=work.log_path,
        )
        arguments = self._signatures.of(work.job.problem, on_miss=lambda: self._executor.expect(order))
        return replace(order, arguments=arguments)

    def _judge_all(self, slot: Slot) -> None:
        while (work := self._take(slot)) is not None:
            try:
                assert work.built is not None
                record = judge(self._executor, slot, work.job, work.built, self._config, work.log_path)
                if self._closing:
                    raise ExecutorError("the Harness was closed while this solution was judged")
            except SlotLost as lost:
                self._lose(work, lost)
                return
            except BaseException as error:
                self._fail(work, self._explained(error))
            else:
                self._finish(work, record)

    def _take(self, slot: Slot) -> Work | None:
        with self._changed:
            while not self._ready:
                if self._closing:
                    return None
                self._changed.wait()
            counts: Counter[Hashable] = Counter(_place(work) for work in self._ready)
            others = [place for name, place in self._at.items() if name != slot.name]
            place = choose(counts, self._at.get(slot.name), others)
            work = next(item for item in self._ready if _place(item) == place)
            self._ready.remove(work)
            self._at[slot.name] = place
            return work

    def _lose(self, work: Work, lost: SlotLost) -> None:
        """A slot is gone: its solution goes to another; where none is left, all that waits is told so."""
        work.losses += 1
        with self._changed:
            self._lost.append(str(lost))
            none_left = len(self._lost) == len(self._judges)
            stranded = []
            if none_left or self._closing:
                stranded, self._ready = [work, *self._ready], []
            elif work.losses >= MAX_SLOTS_LOST:
                stranded = [work]
            else:
                self._ready.insert(0, work)
                self._changed.notify_all()
        for item in stranded:
            self._fail(item, ExecutorError(f"out of service: {lost}"))

    def _finish(self, work: Work, record: Record) -> None:
        try:
            result = self._deliver(work, record)
        except BaseException as error:
            self._fail(work, error)
            return
        self._let_go(work)
        work.future.set_result(result)

    def _fail(self, work: Work, error: BaseException) -> None:
        self._let_go(work)
        if not work.future.done():
            work.future.set_exception(error)

    def _let_go(self, work: Work) -> None:
        if work.built is not None:
            work.built.release()
            work.built = None
        if work.has_room:
            work.has_room = False
            self._room.release()


def _place(work: Work) -> Hashable:
    """What a referee keeps ready."""
    return work.job.problem.digest, work.job.workload.name

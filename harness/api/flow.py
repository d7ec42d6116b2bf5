"""What is behind `Harness`: a conductor to which work arrives while it runs, and results as futures.

Outside layer; trusted side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from harness.api.result import Result
from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.record import Record
from harness.runner.executors import Built, Executor, ExecutorError, Slot, SlotLost
from harness.runner.listeners import Kind, PendingSolution
from harness.runner.runner import AHEAD, Runner
from harness.runner.scheduler import Schedule

_CLOSED = "the Harness was closed before this solution was judged"


class Flow:
    """Runs what it is given through an executor, which it closes at the end. Safe for threads."""

    def __init__(
        self,
        executor: Executor,
        config: RunConfig,
        environment: Environment,
        deliver: Callable[[PendingSolution, Record], Result],
    ) -> None:
        self._executor, self._deliver = executor, deliver
        self._futures: dict[PendingSolution, tuple[Future[Result], object]] = {}
        self._lock = threading.Lock()
        self._closing = False
        builders = max(1, executor.builders)
        self._schedule: Schedule[PendingSolution, Built] = Schedule(
            (), ahead=AHEAD + builders, more=True, slots=len(executor.slots)
        )
        self._runner = Runner(executor, config, environment, self._schedule, self, builders=builders)
        self._runner.start()

    def submit(self, work: PendingSolution, future: Future[Result], owner: object = None) -> None:
        """The future is settled once the work is judged; `owner` is kept until then. Raises `RuntimeError` after
        `close`.
        """
        with self._lock:
            if self._closing:
                raise RuntimeError("closed")
            self._futures[work] = future, owner
        future.add_done_callback(lambda _: self._forget(work))
        self._schedule.add(work.place, work)
        if why := self._runner.lost:
            self._fail(work, ExecutorError(f"no device is left: {why}"))

    @property
    def calls_back(self) -> bool:
        """Whether it is one of its own threads that asks: in what is called back on a future. All the others may wait
        for that one.
        """
        return any(thread is threading.current_thread() for _, thread in self._runner.threads)

    def close(self) -> None:
        """Cancel what has not begun, end every process; what was being judged gets an exception. Idempotent, also where
        it was interrupted before.
        """
        with self._lock:
            self._closing = True
        self._runner.stop()
        self._executor.close()
        self._runner.close()
        self._runner.join()
        self._fail_all(ExecutorError(_CLOSED))

    def wanted(self, work: PendingSolution) -> bool:
        with self._lock:
            if work not in self._futures:
                return False
            future, _ = self._futures[work]
            if future.set_running_or_notify_cancel():
                return True
            del self._futures[work]
            return False

    def built(self, work: PendingSolution, built: Built) -> None:
        """What a killed builder says is no verdict."""
        if self._closing:
            built.release()
            raise ExecutorError(_CLOSED)

    def finished(self, work: PendingSolution, record: Record, slot: Slot | None) -> None:
        """The result is delivered, but not what comes of processes that are being ended."""
        if self._closing:
            self._fail(work, ExecutorError(_CLOSED))
            return
        try:
            result = self._deliver(work, record)
        except BaseException as error:
            self._fail(work, error)
            return
        if (future := self._claimed(work)) is not None:
            _settle(lambda: future.set_result(result))

    def failed(self, work: PendingSolution | None, error: BaseException) -> None:
        """Whatever goes wrong while the processes are being ended goes wrong because of that."""
        if self._closing and not isinstance(error, ExecutorError):
            error = ExecutorError(f"{_CLOSED} ({type(error).__name__})")
        if work is not None:
            self._fail(work, error)
        else:
            self._fail_all(error)

    def lost(self, lost: SlotLost, cause: BaseException | None) -> None:
        """Where none is left, all that waits is told so."""
        if (why := self._runner.lost) and not self._closing:
            self._fail_all(ExecutorError(f"no device is left: {why}"))

    def left(self, kind: Kind) -> None:
        """A thread that ends tells nobody anything: `failed` did."""

    def noted(self, message: str) -> None:
        """Nobody watches."""

    def _claimed(self, work: PendingSolution) -> Future[Result] | None:
        """The future, for the one who settles it, or says that it is cancelled; None where somebody else does."""
        with self._lock:
            future, _ = self._futures.pop(work, (None, None))
        return future

    def _forget(self, work: PendingSolution) -> None:
        """Its future is done: where whoever waits for it has cancelled it, nobody but this has heard of that."""
        if (future := self._claimed(work)) is not None and future.cancelled():
            future.set_running_or_notify_cancel()  # else `as_completed` waits for it

    def _fail(self, work: PendingSolution, error: BaseException) -> None:
        if (future := self._claimed(work)) is None:
            return
        # What has not begun is cancelled by a close, and so is told apart from what was under way.
        if self._closing:
            _settle(future.cancel)
        if future.running() or future.set_running_or_notify_cancel():
            _settle(lambda: future.set_exception(error))

    def _fail_all(self, error: BaseException) -> None:
        with self._lock:
            works = list(self._futures)
        for work in works:
            self._fail(work, error)


def _settle(tell: Callable[[], object]) -> None:
    """What is called back on this may raise what ends a thread, such as `SystemExit`: it ends none of these."""
    with suppress(BaseException):
        tell()

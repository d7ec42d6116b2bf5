"""Run submitted solutions through an executor and deliver the results as futures.

Trusted side.
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

_CLOSED = "the Harness was closed before this solution was evaluated"


class Flow:
    """Run solutions through an executor, and settle their futures.

    Safe to use from several threads.

    Args:
        executor: Builds and evaluates solutions; `close` closes it.
        config: Settings of the run.
        environment: Facts about this machine.
        deliver: Turns a record into the result of a future, and stores it.
    """

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
        """Queue a solution.

        Args:
            work: The solution.
            future: Gets the result.
            owner: An object to keep alive until the future is settled.

        Raises:
            RuntimeError: This flow is closed.
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
        """Whether the caller is a thread of this flow: in a future's callback.

        Such a caller must not wait for the flow: other threads may wait for it.
        """
        return any(thread is threading.current_thread() for _, thread in self._runner.threads)

    def close(self) -> None:
        """Cancel waiting solutions, end all processes, and fail running solutions.

        May be called again, also after an interrupted call.
        """
        with self._lock:
            self._closing = True
        self._runner.stop()
        self._executor.close()
        self._runner.close()
        self._runner.join()
        self._fail_all(ExecutorError(_CLOSED))

    def wanted(self, work: PendingSolution) -> bool:
        """Return whether the solution is still to be built: its future is not cancelled."""
        with self._lock:
            if work not in self._futures:
                return False
            future, _ = self._futures[work]
            if future.set_running_or_notify_cancel():
                return True
            del self._futures[work]
            return False

    def built(self, work: PendingSolution, built: Built) -> None:
        """Accept a build, unless this flow is closed.

        The message of a killed builder is no verdict.

        Raises:
            ExecutorError: This flow is closed.
        """
        if self._closing:
            built.release()
            raise ExecutorError(_CLOSED)

    def finished(self, work: PendingSolution, record: Record, slot: Slot | None) -> None:
        """Deliver a record as the result of its future; after `close`, fail the future."""
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
        """Fail one future, or all; an error after `close` is reported as caused by it."""
        if self._closing and not isinstance(error, ExecutorError):
            error = ExecutorError(f"{_CLOSED} ({type(error).__name__})")
        if work is not None:
            self._fail(work, error)
        else:
            self._fail_all(error)

    def lost(self, lost: SlotLost, cause: BaseException | None) -> None:
        """Fail all waiting futures if no device is left."""
        if (why := self._runner.lost) and not self._closing:
            self._fail_all(ExecutorError(f"no device is left: {why}"))

    def left(self, kind: Kind) -> None:
        """Do nothing: `failed` has already reported the error that ended a thread."""

    def noted(self, message: str) -> None:
        """Do nothing: nobody reads messages."""

    def _claimed(self, work: PendingSolution) -> Future[Result] | None:
        """Take the future of a solution to settle it; None if it is already taken."""
        with self._lock:
            future, _ = self._futures.pop(work, (None, None))
        return future

    def _forget(self, work: PendingSolution) -> None:
        """Drop a done future; if the caller has cancelled it, notify its waiters."""
        if (future := self._claimed(work)) is not None and future.cancelled():
            future.set_running_or_notify_cancel()  # otherwise `as_completed` waits forever

    def _fail(self, work: PendingSolution, error: BaseException) -> None:
        if (future := self._claimed(work)) is None:
            return
        # `close` cancels futures that have not started and fails those under way, so callers can tell them apart.
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
    """Settle a future; an exception in its callbacks must not end this thread."""
    with suppress(BaseException):
        tell()

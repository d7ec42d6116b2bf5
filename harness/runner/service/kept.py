"""The builders and referees that a server keeps between runs.

Trusted side. Runs with the same settings share them. A run with other settings waits until no run uses them; runs that
come after it wait behind it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.config import RunConfig
from harness.core.environment import MachineError, collect, cuda_unusable, machine
from harness.runner.cascade import open_cascade
from harness.runner.events import SolutionFinished
from harness.runner.executors.local import LocalExecutor
from harness.runner.runner import Runner
from harness.runner.service import ServiceError
from harness.runner.service.words import config_of

POLL_S = 0.1
"""How often a waiting call checks whether it was cancelled, in seconds."""


ENDED = "the server is shutting down"

END_S = 10.0
"""How long an executor that is just opening may take to end when the server ends, in seconds."""


def _end_children() -> None:
    """Kill every child process, with its process group if it leads one."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            pid = int(entry.name)
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)


class WarmPool:
    """The shared runner of one set of settings at a time. Thread-safe."""

    def __init__(self, logs: Path, *, idle_s: float) -> None:
        """Create an empty pool.

        `logs` is the folder for the processes' logs. `tidy` ends processes that were unused for `idle_s` seconds.
        """
        self._logs = logs
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._shared: Runner[SolutionFinished] | None = None
        self._key = ""
        self._users = 0
        self._used_s = time.monotonic()
        self._closed = self._opening = False

    def enter(
        self,
        settings: Mapping[str, Any],
        *,
        gave_up: Callable[[], bool] = lambda: False,
        waits: Callable[[], None] = lambda: None,
    ) -> Runner[SolutionFinished] | None:
        """Return the runner for these settings, opened if needed; `leave` gives it back.

        `waits` is called if other runs have to end first. Returns None once `gave_up` returns True. Raises the errors
        of opening an executor, and `ServiceError` after `close`.
        """
        key, ticket, told = json.dumps(settings, sort_keys=True), object(), False
        with self._changed:
            self._queue.append(ticket)
        try:
            with self._changed:
                while not (self._queue[0] is ticket and (self._fits(key) or not self._users)):
                    if not told:
                        waits()
                        told = True
                    if gave_up():
                        return None
                    self._changed.wait(POLL_S)
                if self._is_closed():
                    raise ServiceError(ENDED)
                if self._fits(key):
                    return self._entered()
                old, self._shared = self._shared, None
            # Only the first in the queue comes here. Opening takes seconds, or a minute if headers have to be
            # precompiled. Meanwhile the lock is free, so that other calls get answers and the server can end.
            if old is not None:
                old.end()
            self._opening = True
            try:
                made = self._opened(settings)
            finally:
                self._opening = False
            with self._changed:
                self._shared, self._key = made, key
                if not self._is_closed():
                    return self._entered()
                self._shared = None
            made.end()
            raise ServiceError(ENDED)
        finally:
            with self._changed:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def _entered(self) -> Runner[SolutionFinished] | None:
        self._users += 1
        return self._shared

    def _is_closed(self) -> bool:
        """Read the flag; a method because another thread sets it."""
        return self._closed

    def leave(self) -> None:
        """Give back the runner of `enter`."""
        with self._changed:
            self._users -= 1
            self._used_s = time.monotonic()
            self._changed.notify_all()

    def tidy(self) -> bool:
        """End processes that were unused for long; return whether any were ended."""
        with self._changed:
            idle = not self._users and not self._queue and time.monotonic() - self._used_s > self._idle_s
            if not idle or self._shared is None:
                return False
            old, self._shared = self._shared, None
        old.end()
        return True

    def close(self) -> None:
        """End every process, also of an executor that is just opening."""
        with self._changed:
            self._closed = True
            old, self._shared = self._shared, None
            self._changed.notify_all()
        if old is not None:
            old.end()
        deadline = time.monotonic() + END_S
        while self._opening and time.monotonic() < deadline:
            _end_children()  # compilers of headers, which may take a minute
            time.sleep(POLL_S)

    def _fits(self, key: str) -> bool:
        """Return whether runs with these settings can use the current runner.

        A runner that lost a slot is opened anew once no run uses it: the device may work again.
        """
        shared = self._shared
        if shared is None or self._key != key or not shared.usable:
            return False
        return shared.whole or self._users > 0

    def _opened(self, settings: Mapping[str, Any]) -> Runner[SolutionFinished]:
        environment = collect()
        config = config_of(settings, machine(environment))
        if config.device is DeviceKind.CUDA and (why := cuda_unusable(environment)):
            raise MachineError(why)
        with ExitStack() as undo:

            def opened(settings: RunConfig, logs: Path) -> LocalExecutor:
                return undo.enter_context(LocalExecutor(settings, environment, logs))

            executor = opened(config, self._logs)
            cascade = open_cascade(config, environment, self._logs, opened)
            made = Runner(executor, config, environment, lambda work, event: event, cascade=cascade)
            undo.pop_all()
            return made

"""What a server keeps between runs: the builders and referees of one set of settings at a time.

Outside layer; trusted side. Runs with the same settings share them; one with others waits until nobody does, and so
does whoever comes behind it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.environment import MachineError, collect, cuda_unusable, machine
from harness.runner.executors.local import LocalExecutor
from harness.runner.service import ServiceError
from harness.runner.service.words import config_of
from harness.runner.shared_runner import SharedRunner

POLL_S = 0.1
"""How often whoever waits asks whether it still has to."""


ENDED = "the server is being ended"

END_S = 10.0
"""How long what is being opened may take to end, at the server's end."""


def _end_children() -> None:
    """Kill every process that this one has started, with its process group where it leads one."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            pid = int(entry.name)
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)


class WarmPool:
    """Safe for threads."""

    def __init__(self, logs: Path, *, idle_s: float) -> None:
        """`logs` is the folder for what these processes say. After `idle_s` seconds in which nobody used them, they are
        ended (`tidy`).
        """
        self._logs = logs
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._shared: SharedRunner | None = None
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
    ) -> SharedRunner | None:
        """What runs with these settings share, opened where it is not yet; `leave` gives it back. None once the caller
        `gave_up`; `waits` is called where others have to end first. Raises what opening raises, and `ServiceError`
        after `close`.
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
            # Nobody else comes this far: this one is the first in the queue. To open takes seconds, or a minute where
            # headers have to be prepared, in which others are answered, and the server may be ended.
            if old is not None:
                old.close()
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
            made.close()
            raise ServiceError(ENDED)
        finally:
            with self._changed:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def _entered(self) -> SharedRunner | None:
        self._users += 1
        return self._shared

    def _is_closed(self) -> bool:
        """Asked anew each time: another thread closes it."""
        return self._closed

    def leave(self) -> None:
        """Whoever entered needs it no more."""
        with self._changed:
            self._users -= 1
            self._used_s = time.monotonic()
            self._changed.notify_all()

    def tidy(self) -> bool:
        """End the processes where they were of no use for long. Whether they were ended."""
        with self._changed:
            idle = not self._users and not self._queue and time.monotonic() - self._used_s > self._idle_s
            if not idle or self._shared is None:
                return False
            old, self._shared = self._shared, None
        old.close()
        return True

    def close(self) -> None:
        """End every process, also of what is under way or just being opened."""
        with self._changed:
            self._closed = True
            old, self._shared = self._shared, None
            self._changed.notify_all()
        if old is not None:
            old.close()
        deadline = time.monotonic() + END_S
        while self._opening and time.monotonic() < deadline:
            _end_children()  # compilers of headers, for whom whoever opens would wait for a minute
            time.sleep(POLL_S)

    def _fits(self, key: str) -> bool:
        """Whether runs with these settings can have what is there. What lost a slot is opened anew once nobody uses it:
        whatever was wrong with a device may be mended.
        """
        shared = self._shared
        if shared is None or self._key != key or not shared.usable:
            return False
        return shared.whole or self._users > 0

    def _opened(self, settings: Mapping[str, Any]) -> SharedRunner:
        environment = collect()
        config = config_of(settings, machine(environment))
        if config.device is DeviceKind.CUDA and (why := cuda_unusable(environment)):
            raise MachineError(why)
        executor = LocalExecutor(config, environment, self._logs)
        try:
            return SharedRunner(executor, config, environment)
        except BaseException:
            executor.close()
            raise

"""Commands of the harness's own (compilers of its headers), several at a time, which end with whoever waits for them.

Edge; imports nothing of the harness. An interrupt reaches a terminal's processes or this one alone, and a compiler goes
on for half a minute that nobody needs any more: so none of them hears of it from the terminal, and all are ended here.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
"""The folder that leads to this package."""


def python(*arguments: str) -> list[str]:
    """The command line of this Python with `arguments`, which does not look for modules in the current folder."""
    return [sys.executable, "-P", *arguments]


def search_path(environment: Mapping[str, str]) -> dict[str, str]:
    """`PYTHONPATH` by which the other Python finds this very package, then the absolute folders that `environment` has
    there.
    """
    # An empty entry stands for the current folder, and others may lie below or above it. Python makes them absolute,
    # and what it looks for modules in, sandboxes show.
    given = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]
    return {"PYTHONPATH": os.pathsep.join([PACKAGE_PARENT, *given])}


def end_with(sock: socket.socket, end: Callable[[], object] = lambda: os._exit(0)) -> None:
    """For the other Python: `end` this process at once when the owner's end of the connection closes, by whatever
    means, even in the middle of a task.
    """

    def watch() -> None:
        poll = select.poll()
        poll.register(sock, select.POLLRDHUP)
        poll.poll()
        end()

    threading.Thread(target=watch, name="watch", daemon=True).start()


END_TIMEOUT_S = 5.0
"""How long a command may take to end when it is asked to; compilers then remove what they have begun to write."""


class CommandPoolClosed(Exception):
    """The crew was given up while, or before, this command ran."""


class CommandPool:
    """Steps in `size` threads, which run commands with `run`. A context manager: left by an exception, it begins no
    further step, ends the commands that run, and returns once they have.
    """

    def __init__(self, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="crew")
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def submit(self, step: Callable[[], None]) -> Future[None]:
        return self._pool.submit(step)

    def run(self, command: Sequence[str], *, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
        """The command's exit code and what it printed. Raises `CommandPoolClosed`, `OSError`,
        `subprocess.TimeoutExpired`.
        """
        with self._lock:
            if self._ended:
                raise CommandPoolClosed
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
                umask=0o022,  # what it makes is for sandboxed processes, which are other users
            )
            self._running.add(process)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            process.communicate()
            raise
        finally:
            with self._lock:
                self._running.discard(process)
        if self._ended:
            raise CommandPoolClosed
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.end()
        self._pool.shutdown(wait=True)

    def end(self) -> None:
        """Begin no further step or command, and end those that run; returns once they have. Idempotent."""
        with self._lock:
            self._ended = True
            running = list(self._running)
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + END_TIMEOUT_S
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
                continue
            _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """To the command and all that it started; it leads a group of its own."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

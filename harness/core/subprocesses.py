"""Run commands of the harness in parallel, and end them with their owner.

Ctrl-C may reach all processes of a terminal or only this one, and a compiler may then run on for half a minute. So each
command runs in a session of its own, and `CommandPool` ends them all.
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
"""Folder that contains the package `harness`."""


def python(*arguments: str) -> list[str]:
    """Return a command of this Python that does not import from the current folder."""
    return [sys.executable, "-P", *arguments]


def search_path(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a `PYTHONPATH` with which another Python finds this package.

    It has this package's folder, then the absolute folders of `environment`.
    """
    # An empty or relative entry means the current folder or one relative to it. Python would make it absolute, and the
    # sandbox shows all folders of `sys.path`.
    given = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]
    return {"PYTHONPATH": os.pathsep.join([PACKAGE_PARENT, *given])}


def end_with(sock: socket.socket, end: Callable[[], object] = lambda: os._exit(0)) -> None:
    """Call `end` as soon as the owner's end of the connection closes.

    It ends the process even in the middle of a task.

    For the started Python. The default ends the process at once.
    """

    def watch() -> None:
        poll = select.poll()
        poll.register(sock, select.POLLRDHUP)
        poll.poll()
        end()

    threading.Thread(target=watch, name="watch", daemon=True).start()


END_TIMEOUT_S = 5.0
"""Seconds between SIGTERM and SIGKILL; compilers need them to remove partial files."""


class CommandPoolClosed(Exception):
    """The pool was ended before or while this command ran."""


class CommandPool:
    """Run steps in `size` threads; the steps run commands with `run`.

    As a context manager: if an exception leaves it, it starts no further step, ends the running commands and waits for
    their end.
    """

    def __init__(self, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="crew")
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def submit(self, step: Callable[[], None]) -> Future[None]:
        return self._pool.submit(step)

    def run(self, command: Sequence[str], *, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command and return its exit code and output.

        Args:
            command: Program and arguments.
            timeout_s: Time limit in seconds; None is no limit.

        Raises:
            CommandPoolClosed: The pool was ended.
            OSError: The command can't be started.
            subprocess.TimeoutExpired: The command exceeded `timeout_s` and was killed.
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
                umask=0o022,  # sandboxed processes, which are other users, read its files
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
        """Start no further step or command, and wait for the running ones.

        It ends running commands by SIGTERM, later by SIGKILL. Idempotent.
        """
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
    """Send a signal to the command and its children, which form a process group."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

"""The client side: a runner whose solutions a server evaluates.

Trusted side.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.core.config import RunConfig
from harness.core.record import Record
from harness.core.task import MAX_TASK_BYTES
from harness.protocol.channel import Channel, WireError
from harness.runner.events import BuildFinished, Event, Noted, SolutionFinished
from harness.runner.executors import ExecutorError
from harness.runner.plan import PendingSolution
from harness.runner.service import ServiceError
from harness.runner.service.place import checked, read_token, stamp
from harness.runner.service.surroundings import surroundings
from harness.runner.service.words import error_of, shared_settings, work_json

ANSWER_S = 30.0
"""Limit for answers that a server gives at once, in seconds."""


def _connected(path: Path) -> Channel:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    channel = Channel(made, max_frame_bytes=MAX_TASK_BYTES, takes_fds=False)
    try:
        made.connect(str(path))
        _, uid, _ = struct.unpack("3i", made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != os.getuid():
            raise ServiceError(f"{path}: this server belongs to another user; pass another socket with --server")
        hello = {"token": read_token(path), "stamp": stamp(), "surroundings": surroundings()}
        channel.send({"type": "hello", **hello}, timeout_s=ANSWER_S)
        answer = channel.receive(ANSWER_S).message
    except (OSError, WireError) as error:
        channel.close()
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ServiceError(
            f"{path}: no server answers ({why}); start one with harness serve, or run without --server (HARNESS_SERVER)"
        ) from error
    except BaseException:
        channel.close()
        raise
    if answer.get("type") != "welcome":
        channel.close()
        raise ServiceError(f"{path}: the server refuses this call: {answer.get('reason')}")
    return channel


class RemoteRunner:
    """The server at `path` as the runner of one run. A context manager.

    Raises `ServiceError` if there is no server, or it refuses this call.
    """

    def __init__(self, path: Path, config: RunConfig) -> None:
        self._path, self._settings = path, shared_settings(config)
        self._channel = _connected(checked(path))
        self._works: dict[str, tuple[PendingSolution, Future[SolutionFinished]]] = {}
        """Each solution and its future, by the solution's label."""
        self._notify: Callable[[Event], None] = lambda event: None
        self._stopped = threading.Event()
        self._closed = False

    def submit(
        self, works: Sequence[PendingSolution], notify: Callable[[Event], None], *, last: bool = True
    ) -> list[Future[SolutionFinished]]:
        """Send all solutions of the run; as `Runner.submit`. Raises `ExecutorError`."""
        assert last
        self._notify = notify
        self._works = {work.job.solution.label: (work, Future()) for work in works}
        try:
            self._send({"type": "begin", "settings": self._settings})
            for work in works:
                self._send({"type": "work", "work": work_json(work)})
            self._send({"type": "all"})
        except (WireError, OSError) as error:
            raise self._gone(f"is gone ({error})") from error
        threading.Thread(target=self._live, name="server", daemon=True).start()
        return [future for _, future in self._works.values()]

    def cancel(self, futures: Collection[Future[SolutionFinished]]) -> int:
        """Start nothing new; return how many evaluations go on.

        Waits until the server has said so.
        """
        with suppress(WireError):
            self._send({"type": "stop"})
            self._stopped.wait(ANSWER_S)
        return sum(not future.done() for future in futures)

    def close(self) -> None:
        self._closed = True
        self._channel.close()

    def __enter__(self) -> RemoteRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, message: Mapping[str, object]) -> None:
        self._channel.send(message, timeout_s=ANSWER_S)

    def _gone(self, how: str) -> ExecutorError:
        return ExecutorError(f"the server at {self._path} {how}; finished records are kept, continue with --resume")

    def _live(self) -> None:
        """Receive the server's messages."""
        try:
            while not self._closed:
                self._heed(self._channel.receive().message)
        except (WireError, OSError) as error:
            self._fail_all(self._gone(f"is gone ({error})"))
        except Exception as error:
            self._fail_all(error)
        finally:
            self._stopped.set()

    def _heed(self, message: Mapping[str, Any]) -> None:
        kind = message["type"]
        if kind in ("built", "finished", "failed"):
            work, future = self._works[message["solution"]]
        if kind == "built":
            event = BuildFinished(solution=work.job.solution, wall_s=message["wall_s"], failed=message["failed"])
            self._notify(event)
        elif kind == "finished":
            record = Record.from_json(message["record"])
            future.set_result(SolutionFinished(record=record, slot=message["slot"]))
        elif kind == "failed":
            future.set_exception(error_of(message["error"]))
        elif kind == "refused":
            self._fail_all(error_of(message["error"]))
        elif kind == "noted":
            self._notify(Noted(message=message["message"]))
        elif kind == "stopped":
            for label in self._works.keys() - {*message["going_on"]}:
                self._works[label][1].cancel()
            self._stopped.set()
        elif kind == "ended":
            self._fail_all(self._gone("was ended"))

    def _fail_all(self, error: BaseException) -> None:
        for _, future in self._works.values():
            if not future.done():
                future.set_exception(error)

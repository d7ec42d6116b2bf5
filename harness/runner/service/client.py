"""The client side: connects to a server and acts as the run's runner.

Trusted side.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.config import RunConfig
from harness.core.record import Record
from harness.core.status import Failure
from harness.core.task import MAX_TASK_BYTES
from harness.protocol.channel import Channel, WireError
from harness.runner.executors import ExecutorError, Slot, SlotLost
from harness.runner.listeners import Conduct, Kind, Listener, PendingSolution, RunnerHandle
from harness.runner.service import ServiceError
from harness.runner.service.place import checked, read_token, stamp
from harness.runner.service.surroundings import surroundings
from harness.runner.service.words import error_of, shared_settings, work_json

ANSWER_S = 30.0
"""Limit for answers that a server gives at once, in seconds."""


def conducted_by(path: Path, config: RunConfig) -> Conduct:
    """Let the server at `path` build and evaluate this run.

    Raises `ServiceError` if there is no server, or it refuses this call.
    """
    channel = _connected(checked(path))
    return lambda listener, works: Remote(channel, path, config, listener, works)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """The part of a build that a server reports."""

    failure: Failure | None
    wall_s: float
    has_cuda_sources: bool = False

    def to_json(self) -> dict[str, Any]:
        return {}

    def release(self) -> None:
        """Do nothing: the server holds the modules."""


class Remote(RunnerHandle):
    """One run on a server. Its own thread receives the server's messages."""

    kinds: Sequence[Kind] = ("build", "judge")

    def __init__(
        self, channel: Channel, path: Path, config: RunConfig, listener: Listener, works: Sequence[PendingSolution]
    ) -> None:
        self._channel, self._path, self._listener = channel, path, listener
        self._settings = shared_settings(config)
        self._works = works
        self._sending = threading.Lock()
        self._begun, self._stopped = threading.Event(), threading.Event()
        self._judging = 0
        self._lost: list[str] = []
        self._closed = False

    @property
    def judging(self) -> int:
        return self._judging

    @property
    def lost(self) -> str:
        return "; ".join(self._lost)

    def start(self) -> None:
        threading.Thread(target=self._live, name="server", daemon=True).start()

    def stop(self) -> None:
        """Start nothing new; return once the server has said how many evaluations go on."""
        if self._closed or self._stopped.is_set():
            return
        with suppress(WireError):
            # The server reads this only after all solutions, which another thread sends.
            self._begun.wait(ANSWER_S)
            self._send({"type": "stop"})
            self._stopped.wait(ANSWER_S)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._channel.close()

    def _live(self) -> None:
        try:
            self._send({"type": "begin", "settings": self._settings})
            for number, work in enumerate(self._works):
                self._send({"type": "work", "number": number, "work": work_json(work)})
            self._send({"type": "all"})
            self._begun.set()
            while not self._closed:
                self._heed(self._channel.receive().message)
        except (WireError, OSError) as error:
            if not self._closed:
                why = f"the server at {self._path} is gone ({error}); finished records are kept, continue with --resume"
                self._listener.failed(None, ExecutorError(why))
        except Exception as error:
            self._listener.failed(None, error)
        finally:
            self._stopped.set()

    def _send(self, message: Mapping[str, object]) -> None:
        with self._sending:
            self._channel.send(message, timeout_s=ANSWER_S)

    def _heed(self, message: Mapping[str, Any]) -> None:
        kind = message["type"]
        number = message.get("number")
        work = None if number is None else self._works[number]
        if kind == "built" and work is not None:
            failure = None if message["failure"] is None else Failure.from_json(message["failure"])
            self._listener.built(work, _Built(failure=failure, wall_s=message["wall_s"]))
        elif kind == "finished" and work is not None:
            title = message["slot"]
            slot = None if title is None else Slot(name=title, title=title)
            self._listener.finished(work, Record.from_json(message["record"]), slot)
        elif kind == "failed":
            self._listener.failed(work, error_of(message["error"]))
        elif kind == "lost":
            self._lost.append(message["reason"])
            self._listener.lost(SlotLost(message["reason"]), None)
        elif kind == "left":
            self._listener.left(message["kind"])
        elif kind == "noted":
            self._listener.noted(message["message"])
        elif kind == "stopped":
            self._judging = message["judging"]
            self._stopped.set()
        elif kind == "ended":
            why = f"the server at {self._path} was ended; finished records are kept, continue with --resume"
            self._listener.failed(None, ExecutorError(why))

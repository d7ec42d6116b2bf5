"""The server: listens on a socket and gives each call its share of the warm pool.

Trusted side. Each call has three threads: one receives, one sends, one waits until its run can start. So no run waits
for a call that stopped reading, and a lost call is noticed at once.
"""

from __future__ import annotations

import fcntl
import os
import queue
import secrets
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from harness.core.task import MAX_TASK_BYTES
from harness.protocol.channel import Channel, WireError
from harness.runner.events import BuildFinished, Event, Noted, SolutionFinished
from harness.runner.plan import PendingSolution
from harness.runner.runner import Runner
from harness.runner.service import ServiceError
from harness.runner.service.kept import WarmPool
from harness.runner.service.place import checked, stamp, token_file, write_token
from harness.runner.service.surroundings import differing, surroundings
from harness.runner.service.words import error_json, work_of

HELLO_S = 10.0
"""How long a new connection may take to identify itself, in seconds."""

SEND_S = 60.0
"""How long a call may leave messages unread, in seconds. Then it counts as gone."""

END_S = 2.0
"""How long the last messages are given to go out, in seconds."""

TIDY_S = 1.0

Tell = Callable[[str], None]


class Server:
    """Listens from `open` on; `serve` answers until interrupted; `close` ends all."""

    _token: str

    def __init__(self, path: Path, *, idle_s: float, tell: Tell) -> None:
        """Prepare the server.

        `tell` gets one line per event, from several threads. Raises `ServiceError`.
        """
        self.path = checked(path)
        self._logs = self.path.with_name(self.path.name + ".logs")
        self.kept = WarmPool(self._logs, idle_s=idle_s)
        self._tell = tell
        self._stamp, self._surroundings = stamp(), surroundings()
        self._calls: set[_Call] = set()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._claim = -1

    def open(self) -> None:
        """Listen on the socket.

        Raises `ServiceError` if another server listens there, or the socket can't be created.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._claim = os.open(
                self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600
            )
            fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.lexists(self.path) and not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise ServiceError(f"{self.path}: exists and is not a socket; pass another path with --socket")
            self.path.unlink(missing_ok=True)  # left by a killed server: a live one holds the lock
            self._logs.mkdir(mode=0o700, exist_ok=True)
            for old in (*self._logs.glob("_referee*.log"), self._logs / "_builder.log"):
                old.unlink(missing_ok=True)
            self._token = write_token(self.path)
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            before = os.umask(0o177)
            try:
                made.bind(str(self.path))
            finally:
                os.umask(before)
            made.listen(64)
            made.settimeout(TIDY_S)
        except BlockingIOError:
            raise ServiceError(f"{self.path}: a server is already running there; use it, or end it first") from None
        except OSError as error:
            why = error.strerror or error
            raise ServiceError(f"{self.path}: can't listen: {why}; pass another path with --socket") from error
        self._socket = made

    def warm(self, settings: Mapping[str, Any]) -> None:
        """Start the processes for these settings in the background."""
        threading.Thread(target=self._warm, args=(settings,), name="warm", daemon=True).start()

    def _warm(self, settings: Mapping[str, Any]) -> None:
        try:
            if self.kept.enter(settings) is not None:
                self.kept.leave()
        except Exception as error:  # the next call meets it again
            self._tell(f"can't start the processes: {error}")

    def serve(self) -> None:
        """Answer calls until interrupted."""
        assert self._socket is not None
        while True:
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                if self.kept.tidy():
                    self._tell("idle: the processes were ended and start again with the next run")
                continue
            except OSError as error:  # no descriptor is left, or the caller is gone
                self._tell(f"can't answer a call: {error.strerror or error}")
                time.sleep(TIDY_S)
                continue
            try:
                threading.Thread(target=self._answer, args=(connection,), name="call", daemon=True).start()
            except RuntimeError as error:  # no thread is left
                connection.close()
                self._tell(f"can't answer a call: {error}")

    def close(self) -> None:
        """Accept no more calls, inform waiting ones, end every process. Idempotent."""
        made, self._socket = self._socket, None
        if made is not None:
            made.close()
            for path in (self.path, token_file(self.path)):
                path.unlink(missing_ok=True)
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.say({"type": "ended"})
        self.kept.close()
        for call in calls:
            call.close()
        if self._claim >= 0:
            os.close(self._claim)
            self._claim = -1

    def _answer(self, connection: socket.socket) -> None:
        pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        channel = Channel(connection, max_frame_bytes=MAX_TASK_BYTES, takes_fds=False)
        with channel, suppress(WireError, OSError, KeyError, TypeError, ValueError):
            hello = channel.receive(HELLO_S).message
            refused = self._refused(hello, uid)
            if refused is not None:
                channel.send({"type": "refused", "reason": refused}, timeout_s=HELLO_S)
                return
            call = _Call(channel, connection, pid, self.kept, self._tell)
            with self._lock:
                self._calls.add(call)
            try:
                call.say({"type": "welcome"})
                call.listen()
            finally:
                with self._lock:
                    self._calls.discard(call)
                call.close()

    def _refused(self, hello: Mapping[str, Any], uid: int) -> str | None:
        """Return why this caller is refused; None if it is accepted."""
        token = hello.get("token")
        if uid != os.getuid() or not isinstance(token, str) or not secrets.compare_digest(token, self._token):
            return "it serves another user, or was restarted meanwhile"
        if hello.get("stamp") != self._stamp:
            return "it runs another version of the code, for example from before an update; restart it"
        return differing(self._surroundings, hello.get("surroundings"))


class _Call:
    """One call: submits its solutions, and sends what becomes of them."""

    def __init__(self, reads: Channel, connection: socket.socket, pid: int, kept: WarmPool, tell: Tell) -> None:
        self._reads, self._connection, self._kept, self._tell = reads, connection, kept, tell
        self._writes = Channel(connection, max_frame_bytes=MAX_TASK_BYTES)
        self._pid = pid
        self._lock = threading.RLock()
        self._runner: Runner[SolutionFinished] | None = None
        self._futures: list[Future[SolutionFinished]] = []
        self._open: set[str] = set()
        """The labels of the solutions whose end was not sent yet."""
        self._stopped = self._closed = False
        self._finished = 0
        self._begin_s = time.monotonic()
        self._outgoing: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._speaker = threading.Thread(target=self._speak, name="speak", daemon=True)
        self._speaker.start()

    def say(self, message: dict[str, Any]) -> None:
        self._outgoing.put(message)

    def listen(self) -> None:
        """Receive the run's solutions, start it, and handle messages until it is gone.

        Raises a `WireError`.
        """
        begin = self._reads.receive().message  # without a limit: planning the run may take long
        works = []
        while (message := self._reads.receive().message)["type"] == "work":
            works.append(work_of(message["work"]))
        threading.Thread(target=self._start, args=(begin["settings"], works), name="start", daemon=True).start()
        while True:
            if self._reads.receive().message["type"] == "stop":
                self.say({"type": "stopped", "going_on": self._stop()})

    def close(self) -> None:
        """Cancel the call's solutions, and stop sending. Idempotent."""
        self._stop()
        self._leave()
        with self._lock:
            closed, self._closed = self._closed, True
        if closed:
            return
        if self._futures:
            took_s = time.monotonic() - self._begin_s
            self._tell(f"process {self._pid}: {self._finished} of {len(self._futures)} evaluated in {took_s:.1f} s")
        self._outgoing.put(None)  # after the queued messages
        self._speaker.join(END_S)

    def _leave(self) -> None:
        """Give back the shared runner. Idempotent."""
        with self._lock:
            runner, self._runner = self._runner, None
        if runner is not None:
            self._kept.leave()

    def _speak(self) -> None:
        try:
            while (message := self._outgoing.get()) is not None:
                self._writes.send(message, timeout_s=SEND_S)
        except (WireError, OSError, ValueError) as error:
            self._tell(f"process {self._pid}: can't send it the results of its solutions: {error}")
            with suppress(OSError):  # so that both sides notice
                self._connection.shutdown(socket.SHUT_RDWR)

    def _start(self, settings: Mapping[str, Any], works: Sequence[PendingSolution]) -> None:
        several = "s" if len(works) != 1 else ""
        self._tell(f"process {self._pid}: {len(works)} solution{several}")
        waits = partial(self._notify, Noted(message="waiting for other runs to end"))
        try:
            runner = self._kept.enter(settings, gave_up=lambda: self._stopped, waits=waits)
        except Exception as error:
            cause = error_json(error)
            self.say({"type": "refused", "error": cause | {"text": f"{cause['text']} (reported by the server)"}})
            return
        if runner is None:
            return
        with self._lock:
            self._runner = runner
            if self._stopped:
                self._leave()
                return
            self._begin_s = time.monotonic()
            self._open = {work.job.solution.label for work in works}
            self._futures = runner.submit(works, self._notify)
            for work, future in zip(works, self._futures, strict=True):
                future.add_done_callback(partial(self._done, work.job.solution.label))

    def _stop(self) -> list[str]:
        """Start nothing new; return the labels of the solutions that are under evaluation."""
        with self._lock:
            self._stopped = True
            runner = self._runner
        if runner is not None:
            runner.cancel(self._futures)
        with self._lock:
            return list(self._open)

    def _notify(self, event: Event) -> None:
        if isinstance(event, BuildFinished):
            label = event.solution.label
            self.say({"type": "built", "solution": label, "wall_s": event.wall_s, "failed": event.failed})
        elif isinstance(event, Noted):
            self.say({"type": "noted", "message": event.message})

    def _done(self, label: str, future: Future[SolutionFinished]) -> None:
        """Send the record of a solution, or why there is none."""
        finished = False
        try:
            event = future.result()
        except CancelledError:
            pass  # the answer to `stop` says so
        except BaseException as error:
            self.say({"type": "failed", "solution": label, "error": error_json(error)})
        else:
            finished = True
            self.say({"type": "finished", "solution": label, "record": event.record.to_json(), "slot": event.slot})
        with self._lock:
            self._finished += finished
            self._open.discard(label)
            if not self._open:  # even if the call does not read the messages
                self._leave()

"""Owner of one zygote process and its children, on a thread of its own.

Trusted side. `zygote` is its public interface.
"""

from __future__ import annotations

import itertools
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.protocol.channel import Channel, WireError, pair
from harness.sandbox import suspend, zygote_process
from harness.sandbox.child import KILL_TIMEOUT_S, Child
from harness.sandbox.policy import ExitReport, SandboxPolicy, SandboxReport, SandboxUnavailable

START_TIMEOUT_S = 120.0
"""Time limit in seconds for importing the preloaded modules (torch: 3 to 5 s from a cold disk)."""
SPAWN_TIMEOUT_S = 60.0
"""Time limit in seconds for starting a child on an overloaded machine; an idle one takes some 10 ms."""
MAX_FDS = 12
"""Most descriptors for one child; with its channel and log they must fit one message."""
_CLOSE_TIMEOUT_S = 5.0


class ZygoteError(Exception):
    """The zygote could not start, died or did not answer; never a submission's fault."""


_LOST = ExitReport(exit_code=None, signal=None, cause="lost", wall_s=0.0)


class _Pending:
    """A spawn that waits for the zygote's answer."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.answered = threading.Event()
        self.child: Child | None = None
        self.refused: str | None = None
        self.failed: str | None = None


class Life:
    """One zygote process from start to end; `restart` replaces it.

    A dedicated thread starts the process and lives as long as it. The kernel ends the process with the *thread* that
    started it, so a short-lived worker thread must not start it.
    """

    def __init__(self, start: zygote_process.Start) -> None:
        self._start = start
        self.pid = 0
        self.threads: int | None = None
        self.death: str | None = None
        self._reason: str | None = None
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._ready = threading.Event()
        self._numbers = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._children: dict[int, Child] = {}
        self._server: int | None = None
        self._held = False
        self.stopping = threading.RLock()
        """Lock for stopping and resuming this zygote's children."""
        self._socket, theirs = pair()
        self._channel = Channel(self._socket)
        started = threading.Event()
        self._thread = threading.Thread(target=self._live, args=(theirs, started), name="zygote", daemon=True)
        self._thread.start()
        started.wait()
        if self.death is not None:
            raise ZygoteError(self.death)

    def wait_ready(self, timeout_s: float) -> None:
        if not self._ready.wait(timeout_s):
            raise ZygoteError(f"the zygote took over {timeout_s:g} s to import {', '.join(self._start.preload)}")
        if self.death is not None:
            raise ZygoteError(self.death)

    def spawn(self, target: str, policy: SandboxPolicy, log_path: Path, fds: Sequence[int]) -> Child:
        self.wait_ready(START_TIMEOUT_S)
        ours, theirs = pair()
        channel = Channel(ours, takes_fds=False)
        pending = _Pending(channel)
        number = next(self._numbers)
        try:
            log_file = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError:
            ours.close()
            theirs.close()
            raise
        try:
            with self._lock:
                self._pending[number] = pending
            message = {"do": "spawn", "id": number, "target": target, "policy": policy.to_json()}
            self._send(message, (theirs.fileno(), log_file, *fds))
            answered = pending.answered.wait(SPAWN_TIMEOUT_S)
        except BaseException:
            channel.close()
            raise
        finally:
            theirs.close()
            os.close(log_file)
            with self._lock:
                self._pending.pop(number, None)
        if pending.child is not None:
            with self.stopping:
                if self._held:
                    self._hold_or_end(pending.child)
            return pending.child
        channel.close()
        if not answered:
            self.kill(number)
            raise ZygoteError(f"the zygote did not start a child within {SPAWN_TIMEOUT_S:g} s")
        if pending.refused is not None:
            raise SandboxUnavailable(
                f"the sandbox mode strict needs every mechanism, but this sandbox is below full strength: "
                f"{pending.refused}; fix that, or use the mode auto"
            )
        raise ZygoteError(pending.failed or self.death or "the zygote could not start a child and gave no reason")

    @property
    def is_held(self) -> bool:
        """Whether all children must stay stopped."""
        return self._held

    def announce(self) -> None:
        """Send the stop signal to all children and hold future ones, without waiting."""
        self._held = True
        # A thread that stops a child now has sent the signal already; `hold` catches a child that resumes now.
        if self.stopping.acquire(blocking=False):
            try:
                for child in self._living():
                    child.announce()
            finally:
                self.stopping.release()

    def hold(self) -> None:
        """Stop all current and future children; kill those that cannot be stopped."""
        with self.stopping:
            self.announce()  # signal all children before waiting for the first
            for child in self._living():
                self._hold_or_end(child)

    def _hold_or_end(self, child: Child) -> None:
        try:
            child.hold()
        except suspend.StopError:
            child.ran_away = True
            self.kill(child._number)

    def release(self) -> None:
        """Resume all children after `hold` or `announce`, except paused ones."""
        with self.stopping:
            if self._held:
                self._held = False
                for child in self._living():
                    child.release()

    def _living(self) -> list[Child]:
        with self._lock:
            return list(self._children.values())

    def kill(self, number: int) -> None:
        with suppress(ZygoteError):  # the children of a dead zygote are dead and reported so
            self._send({"do": "kill", "id": number})

    def abandon(self) -> None:
        """Kill the process of a zygote that does not obey, with all its children."""
        self._reason = f"the zygote did not end a child within {KILL_TIMEOUT_S:g} s and was killed"
        with suppress(OSError):
            if self._server is not None:
                signal.pidfd_send_signal(self._server, signal.SIGKILL)
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """End the process; wait until it and all its children are gone."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(3 * _CLOSE_TIMEOUT_S)

    def _send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        try:
            with self._sending:
                if self.death is not None:  # the channel is closed then
                    raise ZygoteError(self.death)
                self._channel.send(message, fds)
        except (WireError, OSError) as error:
            raise ZygoteError(self.death or f"the zygote has ended: {error}") from error

    def _live(self, theirs: socket.socket, started: threading.Event) -> None:
        """Start the process, handle its messages and wait for its end (the thread)."""
        try:
            started_process = zygote_process.start(theirs, self._start)
        except OSError as error:
            self.death = f"the zygote could not be started: {error}"
            self._channel.close()
            started.set()
            return
        finally:
            theirs.close()
        self.pid = started_process.pid
        started.set()
        lost = ""
        try:
            while True:
                received = self._channel.receive()
                if received.message["event"] == "broken":
                    self._reason = f"the zygote could not import its modules: {received.message['reason']}"
                    break
                self._hear(received.message, received.fds)
        except (WireError, OSError) as error:
            lost = str(error)
        finally:  # in any case, no thread may wait for ever
            self._see_dead(started_process)
            self._mourn(self._reason or f"the zygote died (exit status {started_process.returncode}): {lost}")

    def _hear(self, message: dict[str, Any], fds: tuple[int, ...]) -> None:
        pid = _pid_of(fds[0]) if fds else None
        for fd in fds:
            os.close(fd)
        match message["event"]:
            case "ready":
                self.threads = message["threads"]
                with suppress(OSError):
                    self._server = os.pidfd_open(message["host_pid"])
                self._ready.set()
            case "spawned":
                with self._lock:
                    number = message["id"]
                    if pending := self._pending.pop(number, None):
                        report = SandboxReport.from_json(message["report"])
                        child = Child(life=self, number=number, channel=pending.channel, report=report, pid=pid)
                        self._children[number] = pending.child = child
                        pending.answered.set()
            case "failed":
                with self._lock:
                    if pending := self._pending.pop(message["id"], None):
                        pending.refused = message.get("refused")
                        pending.failed = message["reason"]
                        pending.answered.set()
            case "exited":
                with self._lock:
                    gone = self._children.pop(message["id"], None)
                if gone is not None:
                    gone.end_with(ExitReport.from_json(message["exit"]))

    def _see_dead(self, started: subprocess.Popen[bytes]) -> None:
        """Wait for the server, which ends after its children, and for its parent."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            started.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
        if self._server is not None:
            select.select([self._server], [], [], _CLOSE_TIMEOUT_S)
            os.close(self._server)
            self._server = None

    def _mourn(self, reason: str) -> None:
        with self._sending:
            self.death = reason
            self._channel.close()
        with self._lock:
            children, pending = list(self._children.values()), list(self._pending.values())
            self._children.clear()
            self._pending.clear()
        for child in children:
            child.end_with(_LOST)
        for one in pending:
            one.failed = reason
            one.answered.set()
        self._ready.set()


def _pid_of(pidfd: int) -> int | None:
    """Return the process id behind a pidfd in this process's pid namespace."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "Pid" and int(value) > 0:
                return int(value)
    return None

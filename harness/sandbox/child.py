"""One sandboxed process, as its owner sees it: waited for, stopped, let go on, ended.

Imports this package's `freeze` and `policy`, and the wire. Trusted side. Made by `life`, which hears of its end.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from harness.protocol.channel import Channel
from harness.sandbox import suspend
from harness.sandbox.policy import ExitReport, SandboxReport

KILL_TIMEOUT_S = 30.0
"""How long a kill may take: processes stuck in a driver die late. After that the zygote itself is given up."""


class ChildOwner(Protocol):
    """What a child needs of the life of its zygote."""

    stopping: threading.RLock
    """Held by whoever stops children or lets them go on."""

    @property
    def is_held(self) -> bool: ...

    def kill(self, number: int) -> None: ...

    def abandon(self) -> None: ...


class Child:
    """One sandboxed process, as its owner sees it. Thread-safe, except for `channel`."""

    def __init__(
        self, *, life: ChildOwner, number: int, channel: Channel, report: SandboxReport, pid: int | None
    ) -> None:
        self._life = life
        self._number = number
        self.channel = channel
        self.report = report
        self.pid = pid
        """The supervisor's process id in the owner's pid namespace; None where it was gone before it was asked for."""
        self._ended = threading.Event()
        self._exit: ExitReport | None = None
        self._below = None if pid is None else suspend.Below(pid)
        self._paused = False
        self._held = False
        self.ran_away = False
        """Whether it was ended since it could not be held still."""

    def wait(self, timeout_s: float | None = None) -> ExitReport | None:
        """How it ended, once everything that it started is gone too; None where that takes longer than asked.

        A child whose zygote died has the cause `lost`.
        """
        return self._exit if self._ended.wait(timeout_s) else None

    def kill(self) -> ExitReport:
        """End it and everything it started, and wait for that. One that had ended keeps its own report."""
        self._life.kill(self._number)
        if not self._ended.wait(KILL_TIMEOUT_S):
            self._life.abandon()
            self._ended.wait()
        assert self._exit is not None
        return self._exit

    def close(self) -> None:
        """Kill it if it still runs, and close the channel."""
        self.kill()
        self.channel.close()

    def pause(self) -> float:
        """Stop everything in it; the `time.perf_counter()` at which the last process was told.

        One that has ended counts as stopped. Raises `StopError` where something keeps running away.
        """
        if self._below is None:
            return time.perf_counter()
        with self._life.stopping:
            self._paused = True
            return self._below.stop()

    def moved(self) -> bool:
        """Whether anything in it has run since it was paused, though it was seen to stand still."""
        with self._life.stopping:
            return self._paused and self._below is not None and self._below.moved()

    @property
    def in_line_s(self) -> float:
        """How long its threads have stood in line for a processor so far, as it was last paused (`freeze.Below`)."""
        return 0.0 if self._below is None else self._below.in_line_s

    def resume(self) -> None:
        """Let it go on after a `pause`; not before its zygote is released, if that is held, or itself."""
        with self._life.stopping:
            self._paused = False
            if not (self._life.is_held or self._held):
                self._go_on()

    def announce(self) -> None:
        """Tell everything in it to stop until `release`, without waiting until it does, as `hold` will."""
        with self._life.stopping:
            self._held = True
            if self._below is not None:
                self._below.tell()

    def hold(self) -> None:
        """Stop everything in it until `release`; `pause` and `resume` take effect afterwards. Raises `StopError`."""
        with self._life.stopping:
            self._held = True
            if self._below is not None:
                self._below.stop()

    def release(self) -> None:
        """Let it go on after a `hold` or `announce`, unless its owner has paused it."""
        with self._life.stopping:
            self._held = False
            if not self._paused:
                self._go_on()

    def _go_on(self) -> None:
        if self._below is not None:
            self._below.go_on()

    def is_ending(self) -> bool:
        """Whether the confined process is ending, or gone: how it ended is to be known soon."""
        return (target := self.target_pid()) is None or suspend.is_ending(target)

    def target_pid(self) -> int | None:
        """The confined process's id in the owner's pid namespace, as NVML names it; None when it is gone."""
        with suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
            return int(text.split()[0])
        return None

    def send(self, number: signal.Signals) -> None:
        """Send the confined process a signal, if it is there and can be told."""
        with suppress(OSError):
            target = os.pidfd_open(self.target_pid() or -1)
            try:
                signal.pidfd_send_signal(target, number)
            finally:
                os.close(target)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def end_with(self, report: ExitReport) -> None:
        """It has ended so: told by its owner. The first one told counts."""
        if not self._ended.is_set():
            self._exit = report
            self._ended.set()

"""Handle of one sandboxed process: wait for it, pause it, resume it, end it.

Trusted side. `zygote_owner` creates it and reports its end.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from harness.protocol.channel import Channel, FrameLimit, FrameTimeout, Received
from harness.sandbox import limits, suspend
from harness.sandbox.policy import ExitReport, SandboxReport

KILL_TIMEOUT_S = 30.0
"""Time limit in seconds for a kill; processes blocked in a driver end late. After it the whole zygote is killed."""

PATIENCE = 10.0
"""A process that is short of processors gets up to this many times its time limit."""
_WAITS = 0.01
"""Processors that a process uses at most if it waits for something else."""
_ENOUGH = 0.9
"""Processors that a process used or could have used, because they were idle, if it is not short of them."""


class ProcessorsShort(Exception):
    """A child was late because it hardly got a processor; the message has figures."""


class ChildOwner(Protocol):
    """Operations of the zygote's owner that a child needs."""

    stopping: threading.RLock
    """Lock for stopping children and resuming them."""

    @property
    def is_held(self) -> bool: ...

    def kill(self, number: int) -> None: ...

    def abandon(self) -> None: ...


class Child:
    """One sandboxed process; thread-safe except for `channel`.

    Attributes:
        channel: Connection to the process.
        report: Active and missing isolation mechanisms.
        pid: The supervisor's process id in the owner's pid namespace; None if it ended first.
        ran_away: Whether it was killed because it could not be stopped.
        starved_s: Seconds that `receive` waited beyond its limits because processors were short.
    """

    def __init__(
        self, *, life: ChildOwner, number: int, channel: Channel, report: SandboxReport, pid: int | None
    ) -> None:
        self._life = life
        self._number = number
        self.channel = channel
        self.report = report
        self.pid = pid
        self._ended = threading.Event()
        self._exit: ExitReport | None = None
        self._below = None if pid is None else suspend.Below(pid)
        self._paused = False
        self._held = False
        self.ran_away = False
        self.starved_s = 0.0

    def receive(self, timeout_s: float, limit: FrameLimit | None = None) -> Received:
        """Return the next frame of `channel`.

        The limit counts what the processes could do: if they run, but get less than one processor while none is idle,
        they have more time. Processes that wait or sleep have not.

        Args:
            timeout_s: Time limit in seconds; up to `PATIENCE` times as much while processors are short.
            limit: What to accept; None accepts what the channel does.

        Raises:
            FrameTimeout: No frame within the limit.
            ProcessorsShort: No frame within `PATIENCE` times the limit, and processors were short.
            WireError: As `Channel.receive`.
        """
        begin_s, half_s, ran_s = time.perf_counter(), timeout_s / 2, 0.0
        with suppress(FrameTimeout):
            return self.channel.receive(half_s, limit)
        try:
            while True:
                before_s, idle_before_s = self._processor_s(), limits.idle_s()
                with suppress(FrameTimeout):
                    return self.channel.receive(half_s, limit)
                got_s, idle_s = self._processor_s() - before_s, limits.idle_s() - idle_before_s
                ran_s += got_s
                enough = got_s + idle_s >= _ENOUGH * half_s
                if enough or got_s <= _WAITS * half_s or ran_s >= timeout_s:
                    raise FrameTimeout(f"no frame within {timeout_s:g} s")
                waited_s = time.perf_counter() - begin_s
                if waited_s > PATIENCE * timeout_s:
                    raise ProcessorsShort(f"it ran for {ran_s:.3g} s of the last {waited_s - half_s:.3g} s")
        finally:
            self.starved_s += max(0.0, time.perf_counter() - begin_s - timeout_s)

    def _processor_s(self) -> float:
        return 0.0 if self.pid is None else limits.processor_s(self.pid)

    def wait(self, timeout_s: float | None = None) -> ExitReport | None:
        """Wait until the process and all its descendants have ended.

        Args:
            timeout_s: Time limit in seconds; None waits without limit.

        Returns:
            How it ended; None after the time limit. The cause is `lost` if the zygote died.
        """
        return self._exit if self._ended.wait(timeout_s) else None

    def kill(self) -> ExitReport:
        """Kill the process and its descendants, and wait for their end.

        Returns:
            How it ended; a process that had ended before keeps its own report.
        """
        self._life.kill(self._number)
        if not self._ended.wait(KILL_TIMEOUT_S):
            self._life.abandon()
            self._ended.wait()
        assert self._exit is not None
        return self._exit

    def close(self) -> None:
        """Kill the process if it still runs, and close the channel."""
        self.kill()
        self.channel.close()

    def pause(self) -> float:
        """Stop all its processes.

        Returns:
            Time (`time.perf_counter()`) at which the last process got the signal. An ended child counts as stopped.

        Raises:
            StopError: Some processes could not be stopped in time.
        """
        if self._below is None:
            return time.perf_counter()
        with self._life.stopping:
            self._paused = True
            return self._below.stop()

    def moved(self) -> bool:
        """Return whether any of its threads ran since the pause took effect."""
        with self._life.stopping:
            return self._paused and self._below is not None and self._below.moved()

    @property
    def in_line_s(self) -> float:
        """Time that its threads have waited for a processor, in seconds, all together.

        Measured at the last pause (`suspend.Below`).
        """
        return 0.0 if self._below is None else self._below.in_line_s

    def resume(self) -> None:
        """Resume after `pause`, unless this child or its zygote is on hold."""
        with self._life.stopping:
            self._paused = False
            if not (self._life.is_held or self._held):
                self._go_on()

    def announce(self) -> None:
        """Send the stop signal without waiting; `hold` then waits less."""
        with self._life.stopping:
            self._held = True
            if self._below is not None:
                self._below.tell()

    def hold(self) -> None:
        """Stop all its processes until `release`.

        `pause` and `resume` take effect after the release.

        Raises:
            StopError: Some processes could not be stopped in time.
        """
        with self._life.stopping:
            self._held = True
            if self._below is not None:
                self._below.stop()

    def release(self) -> None:
        """Resume after `hold` or `announce`, unless the child is paused."""
        with self._life.stopping:
            self._held = False
            if not self._paused:
                self._go_on()

    def _go_on(self) -> None:
        if self._below is not None:
            self._below.go_on()

    def is_ending(self) -> bool:
        """Return whether the confined process is ending or gone; its report follows."""
        return (target := self.target_pid()) is None or suspend.is_ending(target)

    def target_pid(self) -> int | None:
        """Return the confined process's id in the owner's pid namespace, as used by NVML.

        None if the process is gone.
        """
        with suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
            return int(text.split()[0])
        return None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the confined process, if it still exists."""
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
        """Set the report of its end; only the first one counts."""
        if not self._ended.is_set():
            self._exit = report
            self._ended.set()

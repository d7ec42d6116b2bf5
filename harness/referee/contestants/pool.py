"""Start contestants ahead: forked, sandboxed, with their device open.

Trusted side. A contestant started ahead serves one purpose of one known task, with the same sandbox and log as without
the pool; no submission's code is in it before it is taken. One thread starts them in turn and leaves each stopped;
while something is timed, `hold` stops the one that is starting. If none is ready or working, `take` starts one on the
spot. See guides/design/contestants.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from harness.core.task import Task
from harness.devices.device import Device
from harness.protocol.messages import Open
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.sandbox import SandboxPolicy, SandboxUnavailable
from harness.sandbox.suspend import StopError
from harness.sandbox.zygote import Zygote, ZygoteError

OPEN_LIMIT_S = 60.0
"""Seconds for opening a device ahead, including time on hold; usually some tenths of a second."""

PAUSE_S = 0.005
"""Seconds without a hold before the next start: another hold may follow at once and would have to wait."""

SOUND_LIMIT_S = 5.0
"""Seconds for a contestant to confirm that its open device still works."""


class Purpose(StrEnum):
    """Purpose of a task's contestant."""

    CALIBRATION = "calibration"
    """Runs the harness's own code, to measure the cost of bursts."""
    JUDGEMENT = "judgement"
    """Runs the solution."""
    RELAUNCHING = "relaunching"
    """Launches what a call of the solution submits to the GPU, without its host code."""


@dataclass(frozen=True, slots=True)
class Key:
    """Identifies a contestant: task (by its log) and purpose."""

    log_path: Path
    purpose: Purpose = Purpose.JUDGEMENT


@dataclass(slots=True, eq=False)
class _PendingStart:
    """A requested contestant.

    `contestant` is None until `over` is set, and afterwards if it could not be started.
    """

    head: Key
    policy: SandboxPolicy
    contestant: ContestantProcess | None = None
    dropped: bool = False
    over: threading.Event = field(default_factory=threading.Event)


class ContestantPool:
    """Starts contestants of one zygote ahead. A context manager.

    Used by one thread besides its own. Works only with the full sandbox, because a solution runs while another's
    contestant waits.
    """

    def __init__(self, zygote: Zygote, opening: Open, *, memory_limit_bytes: int) -> None:
        self._zygote = zygote
        self._opening = opening
        self._memory_limit_bytes = memory_limit_bytes
        self._changed = threading.Condition()
        self._known: dict[Key, _PendingStart] = {}
        self._waiting: list[_PendingStart] = []
        self._busy = False
        self._opening_now: ContestantProcess | None = None
        self._held = False
        self._released_s = 0.0
        self._closed = False
        self._unwalled = False
        self._thread: threading.Thread | None = None

    def begin(self, head: Key, policy: SandboxPolicy) -> None:
        """Request a contestant; it starts after earlier requests.

        Args:
            head: Identifies it. If it exists or is requested with the same policy, nothing changes.
            policy: Its sandbox.
        """
        with self._changed:
            if self._closed or self._unwalled or policy.mode == "off":
                return
            if (known := self._known.get(head)) is not None and known.policy == policy:
                return
        self._drop([head])
        with self._changed:
            begun = self._known[head] = _PendingStart(head, policy)
            self._waiting.append(begun)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="prefork", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def take(self, head: Key, policy: SandboxPolicy) -> ContestantProcess:
        """Return the contestant started ahead, or a new one.

        Args:
            head: Identifies it.
            policy: Its sandbox; a contestant with another one, or one that no longer works, is replaced.

        Returns:
            The process; the caller ends it.

        Raises:
            Exception: As `ContestantProcess`.
        """
        with self._changed:
            begun = self._known.pop(head, None)
            if begun in self._waiting:
                self._waiting.remove(begun)
                begun = None
        if begun is not None:
            self._finish(begun)
            contestant, begun.contestant = begun.contestant, None
            if contestant is not None:
                if begun.policy == policy and self._sound(contestant):
                    return contestant
                contestant.__exit__()
        return ContestantProcess(self._zygote, policy, head.log_path, memory_limit_bytes=self._memory_limit_bytes)

    def keep(self, log_paths: Collection[Path]) -> None:
        """End all contestants except those of the tasks with these logs."""
        with self._changed:
            others = [head for head in self._known if head.log_path not in log_paths]
        self._drop(others)

    def hold(self) -> None:
        """Start nothing more until `release`; return when the current start is stopped."""
        with self._changed:
            self._held = True
            # The zygote builds the sandbox in some milliseconds.
            self._changed.wait_for(lambda: not self._busy or self._opening_now is not None)
            if self._opening_now is not None:
                try:
                    self._opening_now.hold()
                except StopError:  # the driver can't be interrupted: let the start finish
                    self._opening_now.go_on()
                    self._changed.wait_for(lambda: not self._busy)

    def release(self) -> None:
        """Continue after `hold`. Idempotent."""
        with self._changed:
            self._held = False
            if self._opening_now is not None:
                self._opening_now.go_on()
            self._released_s = time.perf_counter()
            self._changed.notify_all()

    def close(self) -> None:
        """End every contestant that was not taken. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._drop(list(self._known))
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> ContestantPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _finish(self, begun: _PendingStart) -> None:
        """Wait until a start has ended.

        It continues even during a hold, because its contestant is needed now.
        """
        with self._changed:
            if self._held and self._opening_now is not None and not begun.over.is_set():
                self._opening_now.go_on()
        begun.over.wait()

    def _drop(self, heads: Collection[Key]) -> None:
        ended: list[ContestantProcess] = []
        with self._changed:
            for head in heads:
                if (begun := self._known.pop(head, None)) is None:
                    continue
                begun.dropped = True  # the thread that starts it will end it
                if begun in self._waiting:
                    self._waiting.remove(begun)
                if begun.contestant is not None:
                    ended.append(begun.contestant)
        for contestant in ended:
            contestant.__exit__()

    def _sound(self, contestant: ContestantProcess) -> bool:
        with suppress(ContestantFailed):
            contestant.open(self._opening, SOUND_LIMIT_S)
            return True
        return False

    def _work(self) -> None:
        """Run the thread: start one contestant after another, each as early as possible."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._waiting and not self._held))
                if self._closed:
                    return
                if (left_s := self._released_s + PAUSE_S - time.perf_counter()) > 0:
                    self._changed.wait(left_s)
                    continue
                begun = self._waiting.pop(0)
                self._busy = True
            contestant = None
            try:
                contestant = self._opened(begun)
            finally:
                with self._changed:
                    dropped = begun.dropped
                    if not dropped:
                        begun.contestant, contestant = contestant, None
                if contestant is not None:
                    contestant.__exit__()
                begun.over.set()
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _opened(self, begun: _PendingStart) -> ContestantProcess | None:
        """Start a contestant and open its device; None if that fails.

        `take` then shows the reason.
        """
        try:
            contestant = ContestantProcess(
                self._zygote, begun.policy, begun.head.log_path, memory_limit_bytes=self._memory_limit_bytes
            )
        except (ZygoteError, SandboxUnavailable, OSError, ValueError):
            return None
        try:
            if contestant.sandbox.strength == "full":
                with self._changed:
                    self._opening_now = contestant
                    self._changed.notify_all()
                    if self._held:
                        contestant.hold()
                contestant.open(self._opening, OPEN_LIMIT_S)
                return contestant
            self._unwalled = True
        except (ContestantFailed, StopError):
            pass
        finally:
            with self._changed:
                self._opening_now = None
                # It may have answered just before the hold; it is paused now and needs no hold.
                contestant.go_on()
        contestant.__exit__()
        return None


RELEASE_LIMIT_S = 10.0
"""Seconds for releasing a problem; usually some milliseconds."""


class TrustedContestant:
    """Lends the contestant of trusted code to one problem after another.

    Used by one thread.
    """

    def __init__(self, start: Callable[[Task], ContestantProcess]) -> None:
        """Use `start` to start a new one; it may raise `ContestantFailed`."""
        self._start = start
        self._kept: ContestantProcess | None = None
        self._base_bytes: int | None = None

    @property
    def waits(self) -> bool:
        """Whether one is ready."""
        return self._kept is not None

    @contextmanager
    def lent(self, task: Task) -> Iterator[ContestantProcess]:
        """Lend a contestant for `task`; all tasks have the same policy.

        It ends with the block unless `give_back` keeps it.
        """
        contestant, self._kept = self._kept or self._start(task), None
        try:
            yield contestant
        finally:
            if contestant is not self._kept:
                contestant.__exit__()

    def give_back(self, contestant: ContestantProcess, device: Device, peak_bytes: int | None) -> int | None:
        """Keep the contestant for the next problem, if its sandbox is full.

        All memory except that of its calls is the same for every problem. It is measured once, by ending the first
        contestant.

        Args:
            contestant: The lent process.
            device: The device, which tells the memory in use.
            peak_bytes: Most device memory that its calls had allocated; None if unknown.

        Returns:
            Bytes of device memory that its process had; None if unknown.
        """
        before = device.taken_bytes()
        if before is not None and self._base_bytes is None:
            contestant.kill()
            after = device.taken_bytes()
            process_bytes = None if after is None else before - after
            if process_bytes is not None and peak_bytes is not None:
                self._base_bytes = process_bytes - peak_bytes
            return process_bytes
        if contestant.sandbox.strength == "full":
            with suppress(ContestantFailed):  # the measurements stay valid, and the next problem gets a new one
                contestant.release(RELEASE_LIMIT_S)
                self._kept = contestant
        return None if self._base_bytes is None or peak_bytes is None else self._base_bytes + peak_bytes

    def close(self) -> None:
        """End the waiting contestant. Idempotent."""
        contestant, self._kept = self._kept, None
        if contestant is not None:
            contestant.__exit__()

"""Contestants begun ahead: forked, sandboxed and with their device open before their turn comes.

Trusted side. Imports `contestant`, `messages` and `sandbox`. One begun ahead is for one purpose of one known task,
with the very policy and log that it would get in its turn, and no code of any submission is in it before it is taken.
A thread begins one after another and leaves each stopped; while something is timed, the one that is at it is stopped
in the middle (`hold`). It is no more than a head start: where there is none, or it is not sound any more, `take`
starts a contestant on the spot.
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
"""How long opening a device ahead may take, the time included in which it is held; it is some tenths of a second."""

PAUSE_S = 0.005
"""How long a silence must be over before one more is begun: another may follow at once, and would wait for it."""

SOUND_LIMIT_S = 5.0
"""How long one that has its device open may take to say that it still is."""


class Purpose(StrEnum):
    """What a contestant of a task is for; the first task of a problem needs both."""

    CALIBRATION = "calibration"
    """The harness's own code, on which is measured what bursts cost."""
    JUDGEMENT = "judgement"


@dataclass(frozen=True, slots=True)
class Key:
    """Which contestant: of the task with this log, for this purpose."""

    log_path: Path
    purpose: Purpose = Purpose.JUDGEMENT


@dataclass(slots=True, eq=False)
class _PendingStart:
    """One that was asked for. `contestant` is None until it is `over`, and then where there is none to be had."""

    head: Key
    policy: SandboxPolicy
    contestant: ContestantProcess | None = None
    dropped: bool = False
    over: threading.Event = field(default_factory=threading.Event)


class ContestantPool:
    """Begins contestants of one zygote ahead. A context manager; used by one thread, beside its own.

    Only behind full walls: a submission runs while another's contestant waits.
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
        """Have it begun, after those asked for before; one that is begun or waits to be is left as it is."""
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
        """The contestant begun ahead under this name, if it has this policy and is sound, else a new one. The caller
        ends it. Raises what `ContestantProcess` raises.
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
        """End all but those of the tasks with these logs."""
        with self._changed:
            others = [head for head in self._known if head.log_path not in log_paths]
        self._drop(others)

    def hold(self) -> None:
        """Begin nothing more until `release`; returns when what is under way is stopped."""
        with self._changed:
            self._held = True
            # Walls are built by the zygote, in some milliseconds.
            self._changed.wait_for(lambda: not self._busy or self._opening_now is not None)
            if self._opening_now is not None:
                try:
                    self._opening_now.hold()
                except StopError:  # in the driver's hands: so it is let come to its end
                    self._opening_now.go_on()
                    self._changed.wait_for(lambda: not self._busy)

    def release(self) -> None:
        """Go on after a `hold`. Idempotent."""
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
        """Wait until one that is under way is over; it is needed, so it goes on even in a silence."""
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
                begun.dropped = True  # one under way is ended by the thread that begins it
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
        """The thread: one after another, so that each is ready as soon as can be."""
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
        """A contestant with its device open; None where there is none, whose reason shows when it is its turn."""
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
                # It may have answered just before it was to be held; it is paused by now, and needs no other hold.
                contestant.go_on()
        contestant.__exit__()
        return None


RELEASE_LIMIT_S = 10.0
"""How long letting go of a problem may take; it is some milliseconds."""


class TrustedContestant:
    """Lends it for one problem after another; used by one thread. `close` ends it."""

    def __init__(self, start: Callable[[Task], ContestantProcess]) -> None:
        """`start` starts a new one, or raises `ContestantFailed`."""
        self._start = start
        self._kept: ContestantProcess | None = None
        self._base_bytes: int | None = None

    @property
    def waits(self) -> bool:
        """Whether there is one that needs not be started."""
        return self._kept is not None

    @contextmanager
    def lent(self, task: Task) -> Iterator[ContestantProcess]:
        """One for `task`, whose policy is the same for all of them; `give_back` may keep it, else it is ended with the
        block.
        """
        contestant, self._kept = self._kept or self._start(task), None
        try:
            yield contestant
        finally:
            if contestant is not self._kept:
                contestant.__exit__()

    def give_back(self, contestant: ContestantProcess, device: Device, peak_bytes: int | None) -> int | None:
        """Keep it for the next problem, behind full walls. How much device memory its process had; None: not known.

        `peak_bytes` is what its calls have allocated. All else is the same for every problem, and is found out by
        ending the first one: what the driver gets back by that, less its peak.
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
            with suppress(ContestantFailed):  # what was measured before holds, and the next problem gets a new one
                contestant.release(RELEASE_LIMIT_S)
                self._kept = contestant
        return None if self._base_bytes is None or peak_bytes is None else self._base_bytes + peak_bytes

    def close(self) -> None:
        """End the one that waits. Idempotent."""
        contestant, self._kept = self._kept, None
        if contestant is not None:
            contestant.__exit__()

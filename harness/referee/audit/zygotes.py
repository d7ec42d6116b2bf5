"""Zygotes under compute-sanitizer's tools: start, lend, pause together.

Trusted side.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.referee.audit.huge_pages import HugePages
from harness.referee.audit.sanitizer import PRINT_LIMIT, SanitizerTool, command
from harness.sandbox.zygote import Zygote, ZygoteError

GIVEN_UP_POLL_S = 0.05
"""How often a waiting audit checks whether it was cancelled."""


@dataclass(slots=True, kw_only=True)
class SanitizerZygote:
    """One tool's zygote and its log."""

    tool: SanitizerTool
    zygote: Zygote
    log_path: Path
    printed: int = 0
    """Findings so far, over all processes that it has watched. A tool stops printing after some number."""

    @property
    def spent(self) -> bool:
        """Whether another zygote should replace it."""
        return self.printed > PRINT_LIMIT // 2 or not self.zygote.alive


class SanitizerZygotes:
    """All zygotes of one auditor. Thread-safe.

    `again` is called with a tool after it has lost a zygote. `most` is the number to keep ready per tool.
    """

    def __init__(
        self,
        executable: str,
        *,
        preload: Sequence[str],
        logs: Path,
        most: Mapping[SanitizerTool, int],
        again: Callable[[SanitizerTool], None],
    ) -> None:
        self._executable = executable
        self._preload = tuple(preload)
        self._logs = logs
        self._most = most
        self._large_pages = HugePages()
        self._again = again
        self._changed = threading.Condition()
        self._held = False
        self._announced = False
        """Whether a hold was announced but has not followed yet."""
        self._stopped = False
        """Whether running audits are paused too."""
        self._moved: tuple[float, float | None] = 0.0, time.perf_counter()
        """Unpaused time up to the last change, and when the current unpaused time began; None while paused."""
        self._active = 0
        self._reading = 0
        """Number of threads that read results of audits."""
        self._all: list[SanitizerZygote] = []
        self._idle: dict[SanitizerTool, list[SanitizerZygote]] = {tool: [] for tool in SanitizerTool}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def active(self) -> int:
        """Number of running audits, counted per tool."""
        return self._active

    def clock(self) -> float:
        """Seconds so far in which the tools were not paused."""
        moved_s, since_s = self._moved
        return moved_s if since_s is None else moved_s + time.perf_counter() - since_s

    def prepare(self, tool: SanitizerTool) -> None:
        """Start one more zygote in advance, unless there are enough.

        If it fails, the next `take` reports the reason.
        """
        with self._changed:
            if sum(post.tool is tool for post in self._all) >= self._most[tool]:
                return  # a `take` that could not wait has started one
        with suppress(ZygoteError, OSError):
            self.give_back(self._begin(tool))

    def take(self, tool: SanitizerTool) -> SanitizerZygote:
        """Take an unused zygote, or start one if all are in use.

        Raises `ZygoteError` and `OSError`.
        """
        with self._changed:
            if self._idle[tool]:
                return self._idle[tool].pop(0)
        return self._begin(tool)

    def give_back(self, post: SanitizerZygote) -> None:
        """Return a zygote after use."""
        if post.spent:
            self.drop(post)
            return
        with self._changed:
            self._idle[post.tool].append(post)

    def drop(self, post: SanitizerZygote) -> None:
        """End a zygote in use: it stopped printing, or crashed."""
        with self._changed:
            self._all.remove(post)
        post.zygote.release()
        post.zygote.close()
        post.log_path.unlink(missing_ok=True)
        self._again(post.tool)

    def _begin(self, tool: SanitizerTool) -> SanitizerZygote:
        # A zygote that failed to start under the same name may still have the old file open.
        log_path = self._logs / f"_audit_{tool.value}_{time.monotonic_ns()}.log"
        zygote = Zygote(
            preload=self._preload,
            env=self._large_pages.variables(tool),
            log_path=self._logs / f"_audit_{tool.value}_zygote.log",
            wrapper=command(self._executable, tool, str(log_path)),
            enclosed=True,
        )
        post = SanitizerZygote(tool=tool, zygote=zygote, log_path=log_path)
        with self._changed:
            self._all.append(post)
            if self._stopped:
                zygote.hold()  # pause its children from the first moment on
        return post

    @contextmanager
    def turn(self, given_up: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Run one audit under one tool, which starts only while nothing is paused.

        Yields True when it may start, False if it was `given_up` before.
        """
        with self._changed:
            while self._held and not given_up():
                self._changed.wait(GIVEN_UP_POLL_S)
            begins = not self._held
            self._active += begins
        try:
            yield begins
        finally:
            with self._changed:
                self._active -= begins
                self._changed.notify_all()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read results of an audit within the block, never while something is timed.

        A submission decides how long reading them takes, and Python runs one thread at a time.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._stopped)
            self._reading += 1
        try:
            yield
        finally:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()

    def announce(self) -> None:
        """Tell all watched processes to stop, without waiting; no audit starts meanwhile.

        `hold` waits for them, and `withdraw` undoes this. Does nothing if all is paused or loosened.
        """
        with self._changed:
            if not self._held:
                self._announced = True
                self._tell()

    def withdraw(self) -> None:
        """Let all continue after an `announce` without a `hold`. Idempotent."""
        with self._changed:
            if self._announced:
                self.release()

    def hold(self) -> bool:
        """Pause all watched processes until `release`, and let no audit start.

        Returns False if none was running.
        """
        with self._changed:
            self._announced = False
            self._tell()  # all of them, before waiting for the first
            for post in self._all if self._active else ():
                post.zygote.hold()
            self._changed.wait_for(lambda: self._reading == 0)
            return self._active > 0

    def release(self) -> None:
        """Let all continue. Idempotent."""
        with self._changed:
            self._go_on()
            self._held = False
            self._changed.notify_all()

    def loosen(self) -> None:
        """Let running audits continue; no audit starts until `release`."""
        with self._changed:
            self._held = True
            self._go_on()

    def drain(self) -> None:
        """Let running audits finish; no audit starts until `release`."""
        self.loosen()
        with self._changed:
            self._changed.wait_for(lambda: self._active == 0)

    def _tell(self) -> None:
        self._held = True
        self._stand(True)
        for post in self._all if self._active else ():
            post.zygote.announce()

    def _go_on(self) -> None:
        self._announced = False
        for post in self._all:
            post.zygote.release()
        self._stand(False)

    def _stand(self, still: bool) -> None:
        """Note that running audits are paused from now on, or continue."""
        self._stopped = still
        self._moved = self.clock(), None if still else time.perf_counter()
        self._changed.notify_all()

    def close(self) -> None:
        for post in self._all:
            post.zygote.close()
        self._large_pages.close()

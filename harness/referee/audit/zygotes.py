"""Zygotes under compute-sanitizer's tools: begun, lent to one audit at a time, and held still together.

Trusted side; used by `auditor`. Imports `largepages`, `sanitizers` and `zygote`.
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
"""How often an audit that waits for its turn looks whether anybody still wants it."""


@dataclass(slots=True, kw_only=True)
class SanitizerZygote:
    """One tool's zygote and its log."""

    tool: SanitizerTool
    zygote: Zygote
    log_path: Path
    printed: int = 0
    """Findings so far, over all that it has watched. A tool falls silent after some."""

    @property
    def spent(self) -> bool:
        """Whether another should take its place."""
        return self.printed > PRINT_LIMIT // 2 or not self.zygote.alive


class SanitizerZygotes:
    """All of one auditor's. Safe for threads. `again` is called with a tool that has lost one, after the loss.

    `most` is how many of each tool are worth having ready.
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
        """Whether it was no more than announced that all is to be held."""
        self._stopped = False
        """Whether what is under way is to stand still, too."""
        self._moved: tuple[float, float | None] = 0.0, time.perf_counter()
        """How long nothing was held still up to the last change, and since when nothing is; None where it is held."""
        self._active = 0
        self._all: list[SanitizerZygote] = []
        self._idle: dict[SanitizerTool, list[SanitizerZygote]] = {tool: [] for tool in SanitizerTool}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def active(self) -> int:
        """Audits under way, each tool's counted."""
        return self._active

    def clock(self) -> float:
        """Seconds so far in which the tools were not held still."""
        moved_s, since_s = self._moved
        return moved_s if since_s is None else moved_s + time.perf_counter() - since_s

    def prepare(self, tool: SanitizerTool) -> None:
        """Begin one more, before it is asked for, unless there are enough; why there is none is told to whoever takes
        the next.
        """
        with self._changed:
            if sum(post.tool is tool for post in self._all) >= self._most[tool]:
                return  # whoever could not wait has begun one
        with suppress(ZygoteError, OSError):
            self.give_back(self._begin(tool))

    def take(self, tool: SanitizerTool) -> SanitizerZygote:
        """One that nobody has, begun where all are taken. Raises `ZygoteError` and `OSError`."""
        with self._changed:
            if self._idle[tool]:
                return self._idle[tool].pop(0)
        return self._begin(tool)

    def give_back(self, post: SanitizerZygote) -> None:
        """Whoever took it is done with it."""
        if post.spent:
            self.drop(post)
            return
        with self._changed:
            self._idle[post.tool].append(post)

    def drop(self, post: SanitizerZygote) -> None:
        """End one that was taken: it fell silent, or crashed and says nothing at all."""
        with self._changed:
            self._all.remove(post)
        post.zygote.release()
        post.zygote.close()
        post.log_path.unlink(missing_ok=True)
        self._again(post.tool)

    def _begin(self, tool: SanitizerTool) -> SanitizerZygote:
        # One that failed to start under this name may still hold the old file.
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
                zygote.hold()  # its children are to be still from the first moment on
        return post

    @contextmanager
    def turn(self, given_up: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """An audit under one tool, which begins only while nothing is held: True then, False where it is `given_up`
        before.
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

    def announce(self) -> None:
        """Tell all that the tools watch to stop, without waiting until it does, and let no audit begin: `hold` waits,
        and `withdraw` takes it back. Nothing happens where all is held or loosened.
        """
        with self._changed:
            if not self._held:
                self._announced = True
                self._tell()

    def withdraw(self) -> None:
        """Let all go on after an `announce` that no `hold` has followed. Idempotent."""
        with self._changed:
            if self._announced:
                self.release()

    def hold(self) -> bool:
        """Stop all that the tools watch until `release`, and let no audit begin. False where none was under way."""
        with self._changed:
            self._announced = False
            self._tell()  # all of them before the first is waited for
            for post in self._all if self._active else ():
                post.zygote.hold()
            return self._active > 0

    def release(self) -> None:
        """Let all go on. Idempotent."""
        with self._changed:
            self._go_on()
            self._held = False
            self._changed.notify_all()

    def loosen(self) -> None:
        """Let what is under way go on, and no audit begin until `release`."""
        with self._changed:
            self._held = True
            self._go_on()

    def drain(self) -> None:
        """Let what is under way come to its end, and no audit begin until `release`."""
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
        """Note that what is under way stands still from now on, or goes on."""
        self._stopped = still
        self._moved = self.clock(), None if still else time.perf_counter()

    def close(self) -> None:
        for post in self._all:
            post.zygote.close()
        self._large_pages.close()

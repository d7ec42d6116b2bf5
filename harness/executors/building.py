"""Builds on this machine: sandboxed builders, forked from a zygote that starts with the first one that is needed.

Trusted side. Where the cache holds all that is asked for, no zygote starts and nothing waits for its imports.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.build import PRELOAD, BuildCache, BuildOutcome, Toolchain, build_solution
from harness.executors import Order
from harness.model import Status
from harness.sandbox import Mode, SandboxPolicy
from harness.zygote import Child, Zygote, ZygoteError

TRIES = 2
"""Builds of one solution; a builder that was killed, or whose zygote was, says nothing about it."""


def was_killed(evidence: Mapping[str, Any]) -> bool:
    """Whether SIGKILL ended the process that a verdict is about. That may have been the machine's doing (somebody,
    the kernel when memory is short) and is worth a second try; a submission that kills itself does so again."""
    return evidence.get("signal") == signal.SIGKILL


class LateZygote(Zygote):
    """A zygote that starts when its first child is asked for, and anew where it has died."""

    def __init__(self, preload: tuple[str, ...], log_path: Path) -> None:
        self._preload, self._log_path = preload, log_path
        self._starting = threading.Lock()
        self._started = False
        self._closed = False

    def start(self) -> None:
        """Have it begin with its imports, if it has not, or has died. Raises `ZygoteError` after `close`."""
        with self._starting:
            if self._closed:
                raise ZygoteError("the builders have been ended")
            if not self._started:
                super().__init__(preload=self._preload, log_path=self._log_path)
                self._started = True
            elif not self.alive:
                self.restart()

    def spawn(self, target: str, policy: SandboxPolicy, log_path: Path, fds: tuple[int, ...] = ()) -> Child:  # type: ignore[override]
        self.start()
        return super().spawn(target, policy, log_path, fds)

    def close(self) -> None:
        with self._starting:
            self._closed = True
            if self._started:
                super().close()


class LocalBuilders:
    """Builds orders with one toolchain and one cache."""

    def __init__(self, toolchain: Toolchain, cache: BuildCache, *, timeout_s: float, sandbox: Mode, log: Path) -> None:
        self._toolchain = toolchain
        self._cache = cache
        self._timeout_s = timeout_s
        self._sandbox: Mode = sandbox
        self._zygote = LateZygote(PRELOAD, log)

    def expect(self) -> None:
        """Begin with the zygote's imports, in the background."""
        with suppress(ZygoteError):  # at the end nobody needs it
            self._zygote.start()

    def build(self, order: Order) -> BuildOutcome:
        """What `build_solution` says; once more where a zygote died under it."""
        for left in reversed(range(TRIES)):
            outcome = build_solution(
                order.source,
                order.filename,
                zygote=self._zygote,
                toolchain=self._toolchain,
                cache=self._cache,
                log_path=order.log_path,
                timeout_s=self._timeout_s,
                sandbox=self._sandbox,
                arguments=order.arguments,
            )
            failure = outcome.failure
            if failure is None or not left:
                break
            if failure.status is not Status.harness_error and not was_killed(failure.evidence):
                break
            outcome.release()
        return outcome

    def close(self) -> None:
        """End the zygote and every builder."""
        self._zygote.close()

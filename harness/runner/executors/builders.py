"""Builds on this machine: sandboxed builders, forked from zygotes that start with the first one that is needed.

Trusted side. Where the cache holds all that is asked for, no zygote starts and nothing waits for its imports.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.core.choices import SandboxMode
from harness.core.status import Status
from harness.runner.executors import BuildRequest
from harness.sandbox.zygote import ZygoteError
from harness.toolchain import (
    BuildCache,
    BuilderZygotes,
    BuildOutcome,
    Compilations,
    Toolchain,
    begin_ahead,
    build_solution,
)

TRIES = 2
"""Builds of one solution; a builder that was killed, or whose zygote was, says nothing about it."""


def was_killed(evidence: Mapping[str, Any]) -> bool:
    """Whether SIGKILL ended the process that a verdict is about. That may have been the machine's doing (somebody,
    the kernel when memory is short) and is worth a second try; a submission that kills itself does so again.
    """
    return evidence.get("signal") == signal.SIGKILL


class LocalBuilders:
    """Builds orders with one toolchain and one cache. Safe for threads."""

    def __init__(
        self, toolchain: Toolchain, cache: BuildCache, *, timeout_s: float, sandbox: SandboxMode, log: Path
    ) -> None:
        self._toolchain = toolchain
        self._cache = cache
        self._timeout_s = timeout_s
        self._sandbox: SandboxMode = sandbox
        self._zygotes = BuilderZygotes(log)
        self._lock = threading.Lock()
        self._ahead: dict[tuple[Path, str], Compilations] = {}
        """What was begun for orders that are expected, by their log and source."""
        self._closed = False

    def expect(self, order: BuildRequest) -> None:
        """As `Executor.expect`: begin with the zygotes' imports, and with what the order's source says."""
        key = (order.log_path, order.source)
        with suppress(ZygoteError), self._lock:  # at the end nobody needs it
            if self._closed or key in self._ahead:
                return
            self._zygotes.start()
            self._ahead[key] = begin_ahead(
                order.source,
                zygotes=self._zygotes,
                toolchain=self._toolchain,
                cache=self._cache,
                timeout_s=self._timeout_s,
                sandbox=self._sandbox,
            )

    def build(self, order: BuildRequest) -> BuildOutcome:
        """What `build_solution` says; once more where a zygote died under it."""
        with self._lock:
            begun = self._ahead.pop((order.log_path, order.source), None)
        for left in reversed(range(TRIES)):
            outcome = build_solution(
                order.source,
                order.filename,
                zygotes=self._zygotes,
                toolchain=self._toolchain,
                cache=self._cache,
                log_path=order.log_path,
                timeout_s=self._timeout_s,
                sandbox=self._sandbox,
                arguments=order.arguments,
                begun=begun,
            )
            begun = None
            failure = outcome.failure
            if failure is None or not left:
                break
            if failure.status is not Status.harness_error and not was_killed(failure.evidence):
                break
            outcome.release()
        return outcome

    def close(self) -> None:
        """End the zygotes and every builder, and what the toolchain is at."""
        with self._lock:
            self._closed = True
            ahead = list(self._ahead.values())
            self._ahead.clear()
        self._zygotes.close()
        self._toolchain.close()
        for begun in ahead:
            begun.close()

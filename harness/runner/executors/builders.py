"""Builds on this machine, in sandboxed builders forked from zygotes.

Trusted side. The zygotes start with the first build that needs one. If the cache holds every module, none starts.
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
    BuildTools,
    Compilations,
    Toolchain,
    begin_ahead,
    build_solution,
)

TRIES = 2
"""Attempts per solution: if a builder or its zygote was killed, that proves nothing about the solution."""


def was_killed(evidence: Mapping[str, Any]) -> bool:
    """Return whether SIGKILL ended the process that this evidence is about.

    The machine may have sent it (the kernel, if memory is short; a user), so a second try is worthwhile. A solution
    that kills itself does so again.
    """
    return evidence.get("signal") == signal.SIGKILL


class LocalBuilders:
    """Builds with one toolchain and one cache. Thread-safe."""

    def __init__(
        self, toolchain: Toolchain, cache: BuildCache, *, timeout_s: float, sandbox: SandboxMode, log: Path
    ) -> None:
        self._tools = BuildTools(
            zygotes=BuilderZygotes(log), toolchain=toolchain, cache=cache, timeout_s=timeout_s, sandbox=sandbox
        )
        self._lock = threading.Lock()
        self._ahead: dict[tuple[Path, str], Compilations] = {}
        """Compilations started by `expect`, by log path and source."""
        self._closed = False

    def expect(self, order: BuildRequest) -> None:
        """As `Executor.expect`: start the zygotes, and what the source shows.

        Those are the compilations of extensions that the source names literally.
        """
        key = (order.log_path, order.source)
        with suppress(ZygoteError), self._lock:  # raised if the zygotes are closed already: then nothing is needed
            if self._closed or key in self._ahead:
                return
            self._tools.zygotes.start()
            self._ahead[key] = begin_ahead(order.source, self._tools)

    def build(self, order: BuildRequest) -> BuildOutcome:
        """Build the solution as `build_solution` does.

        Build once more if a zygote died meanwhile.
        """
        with self._lock:
            begun = self._ahead.pop((order.log_path, order.source), None)
        for left in reversed(range(TRIES)):
            outcome = build_solution(
                order.source,
                order.filename,
                self._tools,
                log_path=order.log_path,
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
        """End the zygotes, every builder, and the toolchain's own compilations."""
        with self._lock:
            self._closed = True
            ahead = list(self._ahead.values())
            self._ahead.clear()
        self._tools.zygotes.close()
        self._tools.toolchain.close()
        for begun in ahead:
            begun.close()

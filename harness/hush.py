"""Keeps the harness's own audits off the GPU while something is timed there.

Trusted side. Imports `audit` and `contention`. Audits run ahead of the judgement, on the same GPU: before a burst they
are stopped, and the GPU is asked until none of their kernels is left on it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness.audit import Auditor
from harness.contention import wait_until_alone

STRAGGLER_S = 1.0
"""How long a kernel that was under way when its tool was stopped may take to leave the GPU. After that its tool is let
go on to its end: racecheck may take seconds for one kernel."""


class Hush:
    """Silence on one GPU; without an auditor there is nothing to do.

    `last_s` is what making it took the last time, `spent_s` all times together.
    """

    def __init__(self, auditor: Auditor | None, device_index: int) -> None:
        self._auditor = auditor
        self._device_index = device_index
        self.last_s = 0.0
        self.spent_s = 0.0

    def begin(self) -> None:
        """Return when no audit is on the GPU any more, nor will be until `end`."""
        if self._auditor is None:
            return
        begin = time.perf_counter()
        if self._auditor.hold() and not wait_until_alone(self._device_index, STRAGGLER_S).alone:
            self._auditor.drain()
        self.last_s = time.perf_counter() - begin
        self.spent_s += self.last_s

    def end(self) -> None:
        """Let audits go on."""
        if self._auditor is not None:
            self._auditor.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Silence for the length of the block."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    @contextmanager
    def gap(self) -> Iterator[None]:
        """The other way round: inside of `held`, let audits go on for the length of the block."""
        self.end()
        try:
            yield
        finally:
            self.begin()

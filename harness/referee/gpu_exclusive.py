"""Keeps the harness's own audits, and contestants that are begun ahead, off the GPU while something is timed there.

Trusted side. Imports `auditor`, `contention` and `prefork`. Audits run ahead of the judgement, on the same GPU: before
a burst they are stopped, and the GPU is asked until none of their kernels is left on it. A contestant being begun is
stopped in the middle; one in the driver's hands is waited for, which takes some tenths of a second at most. Audits can
be told before (`announce`), so that they come to a stand beside what is left to be done.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness.devices.gpu_sharing_probe import wait_until_alone
from harness.referee.audit.auditor import Auditor
from harness.referee.contestants.pool import ContestantPool

STRAGGLER_S = 0.03
"""How long a kernel that was under way when its tool was stopped may take to leave the GPU: milliseconds are usual. One
that waits for its tool to take down what it found stays for as long as the tool stands still."""

GO_ON_S = (0.02, 0.04, 0.08, 0.16, 0.3, 0.6)
"""How long tools are let go on where such a kernel stays, before they are stopped again: longer each time, since
racecheck may take seconds for one kernel. After the last time they are let come to their end."""


class GpuExclusive:
    """Silence on one GPU; without an auditor and contestants begun ahead there is nothing to do.

    `last_s` is what stopping audits took the last time, unannounced, or would have; `audits_s` what they were waited
    for all times together, and `head_starts_s` what stopping the contestants took that were being begun.
    """

    def __init__(self, auditor: Auditor | None, device_index: int, prefork: ContestantPool | None = None) -> None:
        self._auditor = auditor
        self._prefork = prefork
        self._device_index = device_index
        self._announced_s: float | None = None
        self.last_s = 0.0
        self.audits_s = 0.0
        self.head_starts_s = 0.0

    def announce(self) -> None:
        """Tell audits to stop, without waiting until they do: a silence is about to `begin`. None begins meanwhile.

        Contestants go on being begun. Taken back by `withdraw` where no silence follows, and by `end`. Idempotent.
        """
        if self._auditor is None:
            return
        begin = time.perf_counter()
        if self._announced_s is None:
            self._announced_s = begin
        self._auditor.announce()
        self.audits_s += time.perf_counter() - begin

    def withdraw(self) -> None:
        """Let audits go on where they were told to stop and no silence has begun. Idempotent."""
        self._announced_s = None
        if self._auditor is not None:
            self._auditor.withdraw()

    def begin(self) -> None:
        """Return when no audit is on the GPU any more, nor any contestant being begun, nor will be until `end`."""
        begin = time.perf_counter()
        active = self._auditor is not None and self._auditor.hold()
        middle = time.perf_counter()
        if self._prefork is not None:
            self._prefork.hold()
        waited_s = time.perf_counter() - middle
        if self._auditor is not None and active:
            self._see_off(self._auditor)
        took_s = time.perf_counter() - begin - waited_s
        ahead_s = 0.0 if self._announced_s is None else begin - self._announced_s
        self._announced_s = None
        # Told ahead, they took longer than was waited for, and no longer than they had.
        self.last_s = min(max(self.last_s, took_s), took_s + ahead_s)
        self.audits_s += took_s
        self.head_starts_s += waited_s

    def _see_off(self, auditor: Auditor) -> None:
        """Return when nothing of what is held is on the GPU any more."""
        for go_on_s in GO_ON_S:
            if wait_until_alone(self._device_index, STRAGGLER_S).alone:
                return
            auditor.loosen()
            time.sleep(go_on_s)
            if not auditor.hold():
                return
        if not wait_until_alone(self._device_index, STRAGGLER_S).alone:
            auditor.drain()

    @property
    def waited_s(self) -> float:
        """Seconds that silences took to begin since `spent` was asked last."""
        return self.audits_s + self.head_starts_s

    def spent(self) -> dict[str, float]:
        """Seconds since this was asked last, by what was stopped."""
        held = {"silence": self.audits_s, "head_starts": self.head_starts_s}
        self.audits_s = self.head_starts_s = 0.0
        return held

    def end(self) -> None:
        """Let audits go on, and contestants be begun."""
        if self._auditor is not None:
            self._auditor.release()
        if self._prefork is not None:
            self._prefork.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Silence for the length of the block."""
        try:
            self.begin()
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

"""Keep audits and prestarting contestants off the GPU while something is timed.

Trusted side. Audits run ahead of evaluations on the same GPU. Before a burst they are stopped, and the GPU is queried
until none of their kernels is on it. A contestant that is opening its device is stopped, too; if the driver holds it,
the referee waits some tenths of a second at most. It goes on while outputs are checked and inputs drawn (`starts`).
`announce` tells audits early, so that they stop while other work is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.devices.gpu_sharing_probe import wait_until_alone
from harness.referee.audit.zygotes import SanitizerZygotes
from harness.referee.contestants.pool import ContestantPool

STRAGGLER_S = 0.03
"""Seconds that a running kernel may take to leave the GPU after its tool was stopped; milliseconds are usual.

A kernel that waits for its tool to read findings stays as long as the tool is stopped.
"""

GO_ON_S = (0.02, 0.04, 0.08, 0.16, 0.3, 0.6)
"""Seconds for which tools run on, in turn, if such a kernel stays, before they are stopped again.

racecheck may take seconds for one kernel, so the times grow. After the last one, audits of solutions that were not
evaluated yet are given up, since a kernel of these may never end; the others run to their end.
"""


class GpuExclusive:
    """Exclusive use of one GPU by the code that is being timed.

    Without tools and a pool it does nothing. `last_s` is the time to stop audits without announcement, as last
    measured. `audits_s` sums the waits for audits, `head_starts_s` those for contestants that were starting.

    Args:
        tools: Run the audits, if there are any.
        device_index: The GPU.
        prefork: Starts contestants ahead, if anything does.
        give_up_ahead: Ends the audits of solutions that were not evaluated yet.
    """

    def __init__(
        self,
        tools: SanitizerZygotes | None,
        device_index: int,
        prefork: ContestantPool | None = None,
        give_up_ahead: Callable[[], None] = lambda: None,
    ) -> None:
        self._tools = tools
        self._prefork = prefork
        self._device_index = device_index
        self._give_up_ahead = give_up_ahead
        self._announced_s: float | None = None
        self.last_s = 0.0
        self.audits_s = 0.0
        self.head_starts_s = 0.0

    def announce(self) -> None:
        """Tell audits to stop, without waiting for it; `begin` will follow.

        No audit starts until `end` or, if no `begin` follows, `withdraw`. Contestants still start. Idempotent.
        """
        if self._tools is None:
            return
        begin = time.perf_counter()
        if self._announced_s is None:
            self._announced_s = begin
        self._tools.announce()
        self.audits_s += time.perf_counter() - begin

    def withdraw(self) -> None:
        """Let announced audits continue if exclusive use has not begun. Idempotent."""
        self._announced_s = None
        if self._tools is not None:
            self._tools.withdraw()

    def begin(self) -> None:
        """Return once no audit and no starting contestant uses the GPU; valid until `end`."""
        begin = time.perf_counter()
        active = self._tools is not None and self._tools.hold()
        middle = time.perf_counter()
        if self._prefork is not None:
            self._prefork.hold()
        waited_s = time.perf_counter() - middle
        if self._tools is not None and active:
            self._see_off(self._tools)
        took_s = time.perf_counter() - begin - waited_s
        ahead_s = 0.0 if self._announced_s is None else begin - self._announced_s
        self._announced_s = None
        # After an announcement, stopping took at least the time waited and at most the time since the announcement.
        self.last_s = min(max(self.last_s, took_s), took_s + ahead_s)
        self.audits_s += took_s
        self.head_starts_s += waited_s

    def _see_off(self, tools: SanitizerZygotes) -> None:
        """Return when no kernel of a stopped audit is on the GPU."""
        for go_on_s in GO_ON_S:
            if wait_until_alone(self._device_index, STRAGGLER_S).alone:
                return
            tools.loosen()
            time.sleep(go_on_s)
            if not tools.hold():
                return
        if wait_until_alone(self._device_index, STRAGGLER_S).alone:
            return
        tools.loosen()
        self._give_up_ahead()
        if tools.hold() and not wait_until_alone(self._device_index, STRAGGLER_S).alone:
            tools.drain()

    @property
    def waited_s(self) -> float:
        """Seconds that beginning exclusive use took since `spent` was called."""
        return self.audits_s + self.head_starts_s

    def spent(self) -> dict[str, float]:
        """Return seconds since the last call: for audits, for starting contestants."""
        held = {"silence": self.audits_s, "head_starts": self.head_starts_s}
        self.audits_s = self.head_starts_s = 0.0
        return held

    def end(self) -> None:
        """Let audits and starting contestants continue."""
        if self._tools is not None:
            self._tools.release()
        if self._prefork is not None:
            self._prefork.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Use the GPU exclusively within the block."""
        try:
            self.begin()
            yield
        finally:
            self.end()

    @contextmanager
    def starts(self) -> Iterator[None]:
        """Within `held`, let contestants start in the block; audits stay stopped."""
        if self._prefork is None:
            yield
            return
        self._prefork.release()
        try:
            yield
        finally:
            begin = time.perf_counter()
            self._prefork.hold()
            self.head_starts_s += time.perf_counter() - begin

    @contextmanager
    def gap(self) -> Iterator[None]:
        """Within `held`, let audits run for the length of the block."""
        self.end()
        try:
            yield
        finally:
            self.begin()

"""The contestant of trusted code, kept from one problem to the next: to start and end one takes a quarter of a second.

Trusted side; used by `learning`. It runs nothing but the harness's own code, is stopped while it waits, and holds no
memory then but CUDA's context and the harness's flush. Submissions run while it waits, so it is kept behind full walls
only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from harness.core.task import Task
from harness.devices import Device
from harness.guest import Guest, GuestFailed

RELEASE_LIMIT_S = 10.0
"""How long letting go of a problem may take; it is some milliseconds."""


class Standby:
    """Lends it for one problem after another; used by one thread. `close` ends it."""

    def __init__(self, start: Callable[[Task], Guest]) -> None:
        """`start` starts a new one, or raises `GuestFailed`."""
        self._start = start
        self._kept: Guest | None = None
        self._base_bytes: int | None = None

    @property
    def waits(self) -> bool:
        """Whether there is one that needs not be started."""
        return self._kept is not None

    @contextmanager
    def lent(self, task: Task) -> Iterator[Guest]:
        """One for `task`, whose policy is the same for all of them; `give_back` may keep it, else it is ended with the
        block."""
        guest, self._kept = self._kept or self._start(task), None
        try:
            yield guest
        finally:
            if guest is not self._kept:
                guest.__exit__()

    def give_back(self, guest: Guest, device: Device, peak_bytes: int | None) -> int | None:
        """Keep it for the next problem, behind full walls. How much device memory its process had; None: not known.

        `peak_bytes` is what its calls have allocated. All else is the same for every problem, and is found out by
        ending the first one: what the driver gets back by that, less its peak.
        """
        before = device.taken_bytes()
        if before is not None and self._base_bytes is None:
            guest.kill()
            after = device.taken_bytes()
            process_bytes = None if after is None else before - after
            if process_bytes is not None and peak_bytes is not None:
                self._base_bytes = process_bytes - peak_bytes
            return process_bytes
        if guest.sandbox.strength == "full":
            with suppress(GuestFailed):  # what was measured before holds, and the next problem gets a new one
                guest.release(RELEASE_LIMIT_S)
                self._kept = guest
        return None if self._base_bytes is None or peak_bytes is None else self._base_bytes + peak_bytes

    def close(self) -> None:
        """End the one that waits. Idempotent."""
        guest, self._kept = self._kept, None
        if guest is not None:
            guest.__exit__()

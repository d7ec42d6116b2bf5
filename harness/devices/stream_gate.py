"""Stream gate: a wait on the GPU's stream that another process opens and times.

Both sides. Two processes share one page of host memory. The contestant queues a wait for one word of the page, the
work, and a write of a second word (`StreamGate`). The referee opens the gate by writing the first word and polls the
second (`Gate`). So the referee's clock measures the device's time, whatever the contestant claims. See
guides/design/stream_gate.md.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

PAGE_BYTES = 4096

PATIENCE_S = 0.1
"""Time limit in seconds for queueing calls; code that waits for the device behind a closed gate would wait for ever."""

OPEN_WORD = 0
DONE_WORD = 16
"""Index of the words (4 bytes each) that open the gate and report finished work; each has its own cache line."""


class StreamGate(Protocol):
    """The device's end of a gate; each use has a higher number than the previous one."""

    def hold(self, number: int) -> None:
        """Make work submitted from now on wait until the gate opens for use `number`."""
        ...

    def tell(self, number: int) -> None:
        """Queue a write that reports all work submitted so far as finished."""
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """Time of an event at the gate, by `time.perf_counter`.

    Attributes:
        at_s: Time in seconds.
        loose_s: Uncertainty in seconds. The gate opened at most this long after `at_s`; work ended at most this long
            before `at_s`. It is large if the owner loses its processor.
    """

    at_s: float
    loose_s: float


@dataclass(frozen=True, slots=True)
class OwnGate:
    """Both ends of a gate in one process, for the process's own work."""

    owner: Gate
    stream: StreamGate


class Gate:
    """The owner's end of a gate."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("harness-gate", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._fd, PAGE_BYTES)
        # Without seals, a process with the descriptor could shrink the page, and the owner's next access would raise
        # SIGBUS.
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._map = mmap.mmap(self._fd, PAGE_BYTES)
        self._words = memoryview(self._map).cast("I")
        self.number = 0
        self._opened = 0
        self._looked_s = time.perf_counter()

    @property
    def fd(self) -> int:
        return self._fd

    def begin(self) -> int:
        """Close the gate for the next use and return its number.

        Values that the other end left on the page are cleared.
        """
        self.number += 1
        self._words[OPEN_WORD] = self._words[DONE_WORD] = 0
        return self.number

    def open(self) -> Moment:
        """Open the gate; reports of finished work before this moment do not count."""
        self._opened = self.number
        self._words[DONE_WORD] = 0
        now_s = time.perf_counter()
        self._words[OPEN_WORD] = self.number
        self._looked_s = time.perf_counter()
        return Moment(at_s=now_s, loose_s=self._looked_s - now_s)

    @property
    def is_open(self) -> bool:
        """Whether `open` was called for this use; ignores the page's contents."""
        return self._opened == self.number

    @property
    def told(self) -> bool:
        """Whether the other end reports finished work; a lie if the gate is closed."""
        return self._words[DONE_WORD] == self.number

    def wait_done(self, timeout_s: float) -> Moment | None:
        """Wait until the work behind the gate is reported finished.

        Polls without a pause, because the measured time may be microseconds.

        Returns:
            Time of the first look that saw the report; None after the time limit.
        """
        deadline_s = time.perf_counter() + timeout_s
        while True:
            look_s = time.perf_counter()
            if self._words[DONE_WORD] == self.number:
                now_s = time.perf_counter()
                return Moment(at_s=now_s, loose_s=now_s - self._looked_s)
            if look_s > deadline_s:
                return None
            self._looked_s = look_s

    def close(self) -> None:
        self._words.release()
        self._map.close()
        os.close(self._fd)


@contextmanager
def opened_after(gate: Gate, patience_s: float) -> Iterator[None]:
    """Open the gate if the block takes longer than `patience_s` seconds.

    Work submitted in the block may wait for the device.
    """
    timer = threading.Timer(patience_s, gate.open)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()

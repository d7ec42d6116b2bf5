"""A gate in front of work that is queued on a device: opened, and its end seen, by another process's clock.

Imports nothing of the harness. The two processes share one page of host memory. Whoever queues the work lets its
stream wait for a word of the page before it and write another one behind it (`StreamGate`, of a `Device`); who owns the
page opens the gate by writing the first word and polls the second (`Gate`). The process that queued the work need not
run in between: the seconds from the one to the other are the device's, whatever that process says of them.
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
"""How long queueing some calls may take: code that waits for the device in between would wait for ever."""

OPEN_WORD = 0
DONE_WORD = 16
"""Words of 4 bytes, on cache lines of their own."""


class StreamGate(Protocol):
    """The end of a gate that is on a device. Each use has a number, higher than the last one's."""

    def hold(self, number: int) -> None:
        """Let what is submitted from now on wait until the gate is opened for use `number`."""
        ...

    def tell(self, number: int) -> None:
        """Have it written that all that was submitted so far is done."""
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """When the owner did or saw something, by `time.perf_counter`: the gate opened within `loose_s` seconds after
    `at_s`, the work was done within as many before. A processor that is taken away from the owner makes them many.
    """

    at_s: float
    loose_s: float


@dataclass(frozen=True, slots=True)
class OwnGate:
    """Both ends in one process, for work of its own."""

    owner: Gate
    stream: StreamGate


class Gate:
    """The owner's end."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("harness-gate", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._fd, PAGE_BYTES)
        # Whoever is given the descriptor could cut the page off, and its owner's next look would be a SIGBUS.
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
        """The number of the next use, for which the gate is shut, whatever the last user left on the page."""
        self.number += 1
        self._words[OPEN_WORD] = self._words[DONE_WORD] = 0
        return self.number

    def open(self) -> Moment:
        """Open it. What the other end has told so far does not count."""
        self._opened = self.number
        self._words[DONE_WORD] = 0
        now_s = time.perf_counter()
        self._words[OPEN_WORD] = self.number
        self._looked_s = time.perf_counter()
        return Moment(at_s=now_s, loose_s=self._looked_s - now_s)

    @property
    def is_open(self) -> bool:
        """Whether `open` was called for this use; what the other process wrote to the page does not count."""
        return self._opened == self.number

    @property
    def told(self) -> bool:
        """Whether the other end says that the work behind the gate is done: a lie while the gate is shut."""
        return self._words[DONE_WORD] == self.number

    def wait_done(self, timeout_s: float) -> Moment | None:
        """When the work behind the gate was seen to be done, for the first time since it was opened; None where that
        takes longer.

        Looks without a pause: what is measured may be microseconds.
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
    """Open the gate if the block takes longer than that: what is submitted in it may wait for the device."""
    timer = threading.Timer(patience_s, gate.open)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()

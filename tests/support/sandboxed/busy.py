"""Targets that are hard to stop at once, as whoever is in a GPU driver's hands. They run inside the sandbox only."""

from __future__ import annotations

import mmap
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.protocol.channel import Channel

LONG_BYTES = 4 * 2**30
"""So many bytes of zeros take the kernel some 0.1 s to map, and no memory but for their page tables."""


def in_long_calls(channel: Channel, fds: list[int]) -> None:
    """One system call after another, each of which comes to its end before a stop has effect."""
    channel.send({"ready": True})
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    while True:
        mmap.mmap(-1, LONG_BYTES, flags=flags, prot=mmap.PROT_READ).close()


def forks(channel: Channel, fds: list[int]) -> None:
    """Processes one after another, each of which makes one, too, and leaves it behind."""
    channel.send({"ready": True})
    while True:
        if os.fork() == 0:
            if os.fork() == 0:
                time.sleep(0.02)
            os._exit(0)
        os.wait()

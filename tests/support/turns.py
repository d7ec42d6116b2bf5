"""Turns on one GPU for the test processes of a machine: many at once, or one alone.

Two locked files. Whoever wants a turn stands in the gate while waiting for the room, so that those who share it can't
keep on coming in before one who wants it alone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Turns:
    """The files begin with `base`; they stay open, so that `remove` by one process takes nothing from another."""

    def __init__(self, base: Path) -> None:
        self._paths = [base.with_name(f"{base.name}.{part}") for part in ("gate", "room")]
        self._gate, self._room = (os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for path in self._paths)

    @contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        """Wait for the room, with others who share it or alone, and keep it for the length of the block."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_UN)

    def remove(self) -> None:
        """Take the files' names away, when nobody will come in any more."""
        for path in self._paths:
            with suppress(FileNotFoundError):
                path.unlink()

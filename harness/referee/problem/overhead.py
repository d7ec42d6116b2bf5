"""Seconds that each defence of one evaluation costs.

Trusted side. Each solution has a ledger. `tests/benchmarks/bench_defences.py` prints the total relative to the rest of
the evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class TimeLedger:
    """Seconds by defence; nested blocks are counted once, for the outer one."""

    def __init__(self) -> None:
        self._spent_s: dict[str, float] = {}
        self._depth = 0

    @contextmanager
    def spend(self, name: str) -> Iterator[None]:
        """Add the block's seconds to `name`, unless an outer block counts them already."""
        self._depth += 1
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.add(name, time.perf_counter() - begin)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to `name`."""
        self._spent_s[name] = self._spent_s.get(name, 0.0) + seconds

    def close(self) -> dict[str, float]:
        """Return all seconds by name and empty the ledger."""
        held, self._spent_s = self._spent_s, {}
        return held

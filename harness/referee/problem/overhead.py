"""What the defences of one evaluation cost: seconds by defence, added up where they are spent.

Trusted side; imports nothing. A ledger is made for each solution; its total against the rest of the evaluation is the
overhead that `tests/benchmarks/bench_defences.py` prints.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class TimeLedger:
    """Seconds by defence. `spend` does not add up twice where one is nested in another."""

    def __init__(self) -> None:
        self._spent_s: dict[str, float] = {}
        self._depth = 0

    @contextmanager
    def spend(self, name: str) -> Iterator[None]:
        """Count the block's seconds towards `name`, unless another block around it counts already."""
        self._depth += 1
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.add(name, time.perf_counter() - begin)

    def add(self, name: str, seconds: float) -> None:
        self._spent_s[name] = self._spent_s.get(name, 0.0) + seconds

    def close(self) -> dict[str, float]:
        """All seconds by name; the ledger is empty afterwards."""
        held, self._spent_s = self._spent_s, {}
        return held

"""How a long run goes, in one line: done, passed, failed, rate, time left, and how many each device did.

Pure: the clock's readings are passed in; `cli` prints. Imports the vocabulary and `report.format`.
"""

from __future__ import annotations

from collections import Counter, deque

from harness.core.status import VERDICT_FREE, Status
from harness.report import format as show

WINDOW = 64
"""Solutions that the rate is of: the latest ones, since cached ones and slow problems come in stretches."""


class Pace:
    """Counts what finishes. `now_s` is any clock that goes on steadily."""

    def __init__(self, total: int, now_s: float) -> None:
        self.total = total
        self.done = self.built = self.passed = self.failed = self.unjudged = 0
        self._slots: Counter[str] = Counter()
        self._latest: deque[float] = deque([now_s], maxlen=WINDOW + 1)

    def finished(self, status: Status, slot: str | None, now_s: float) -> None:
        """One more has its record; `slot` is the title of the device that judged it, None where none did."""
        self.done += 1
        self.passed += status is Status.passed
        self.unjudged += status in VERDICT_FREE
        self.failed += status is not Status.passed and status not in VERDICT_FREE
        if slot is not None:
            self._slots[slot] += 1
        self._latest.append(now_s)

    def rate_per_s(self) -> float | None:
        """Solutions a second over the latest; None before the first has finished."""
        took_s = self._latest[-1] - self._latest[0]
        return (len(self._latest) - 1) / took_s if took_s > 0 else None

    def left_s(self) -> float | None:
        """Seconds until all are done, at this rate."""
        rate = self.rate_per_s()
        return (self.total - self.done) / rate if rate else None

    def line(self) -> str:
        """`12/64 done, 9 passed, 3 failed, 1310 an hour, 2 min 23 s left (GPU 0 NVIDIA H200: 6, GPU 1 …: 6)`."""
        parts = [f"{self.done}/{self.total} done", f"{self.passed} passed", f"{self.failed} failed"]
        if self.unjudged:
            parts.append(f"{self.unjudged} without a verdict")
        rate, left_s = self.rate_per_s(), self.left_s()
        if rate is not None:
            parts.append(f"{rate * 3600:.0f} an hour")
        if left_s is not None and self.done < self.total:
            parts.append(f"{show.duration(left_s)} left")
        each = ", ".join(f"{show.line(name, 40)}: {count}" for name, count in sorted(self._slots.items()))
        return ", ".join(parts) + (f" ({each})" if len(self._slots) > 1 else "")

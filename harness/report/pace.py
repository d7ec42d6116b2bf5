"""Summarise the progress of a run in one line."""

from __future__ import annotations

from collections import Counter, deque

from harness.core.status import VERDICT_FREE, Status
from harness.report import format as show

WINDOW = 64
"""Number of latest solutions that give the rate, since cached solutions and slow problems come in groups."""


class Pace:
    """Count finished solutions. `now_s` is the time of any monotonic clock."""

    def __init__(self, total: int, now_s: float) -> None:
        self.total = total
        self.done = self.built = self.passed = self.failed = self.unjudged = 0
        self._slots: Counter[str] = Counter()
        self._latest: deque[float] = deque([now_s], maxlen=WINDOW + 1)

    def finished(self, status: Status, slot: str | None, now_s: float) -> None:
        """Count one more record; `slot` is the device that evaluated it, or None."""
        self.done += 1
        self.passed += status is Status.passed
        self.unjudged += status in VERDICT_FREE
        self.failed += status is not Status.passed and status not in VERDICT_FREE
        if slot is not None:
            self._slots[slot] += 1
        self._latest.append(now_s)

    def rate_per_s(self) -> float | None:
        """Return solutions per second over the latest ones; at first None."""
        took_s = self._latest[-1] - self._latest[0]
        return (len(self._latest) - 1) / took_s if took_s > 0 else None

    def left_s(self) -> float | None:
        """Return the seconds until all are done at this rate."""
        rate = self.rate_per_s()
        return (self.total - self.done) / rate if rate else None

    def line(self) -> str:
        """Format `12/64 done, 9 passed, 3 failed, 1310 per hour, 2 min 23 s left (…)`."""
        parts = [f"{self.done}/{self.total} done", f"{self.passed} passed", f"{self.failed} failed"]
        if self.unjudged:
            parts.append(f"{self.unjudged} without a verdict")
        rate, left_s = self.rate_per_s(), self.left_s()
        if rate is not None:
            parts.append(f"{rate * 3600:.0f} per hour")
        if left_s is not None and self.done < self.total:
            parts.append(f"{show.duration(left_s)} left")
        each = ", ".join(f"{show.line(name, 40)}: {count}" for name, count in sorted(self._slots.items()))
        return ", ".join(parts) + (f" ({each})" if len(self._slots) > 1 else "")

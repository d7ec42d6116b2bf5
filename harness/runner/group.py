"""Solutions to one problem, timed until their ranking or rewards are settled.

Trusted side. The samples of a training step are compared with each other, so most of them need no interval of 0.5 %.
"""

from __future__ import annotations

import threading
from typing import Self

from harness.core.record import Record
from harness.core.task import SettledAt
from harness.results.reward import RewardPolicy

APART, TIED = 0.1, 0.05
"""Half widths, as differences of logs, at which the timing of a ranked solution ends: if its interval meets no other
one, and if it does. With them, groups take a third of the timed seconds, and their rank correlation with full timing is
0.984 to 0.993 (`tests/benchmarks/bench_groups.py`).
"""

WIDEST = 1.0
"""Widest half width at which timing ends, however little a reward depends on the speedup."""


class Group:
    """Solutions to one problem. Thread-safe; `ranking` and `rewards` make one."""

    def __init__(self, apart: float, tied: float) -> None:
        self._apart, self._tied = apart, tied
        self._lock = threading.Lock()
        self._intervals: list[tuple[float, float]] = []

    @classmethod
    def ranking(cls) -> Self:
        """Return a group in which timing ends when the order of the solutions is settled."""
        return cls(APART, TIED)

    @classmethod
    def rewards(cls, policy: RewardPolicy, tolerance: float) -> Self:
        """Return a group in which timing ends when each reward is settled.

        Args:
            policy: How rewards are computed.
            tolerance: Largest change of a reward by more timing.

        Raises:
            ValueError: The tolerance is not positive.
        """
        if not tolerance > 0.0:
            raise ValueError(f"tolerance must be above 0, not {tolerance!r:.60}")
        width = min(WIDEST, tolerance / policy.steepest if policy.steepest else WIDEST)
        return cls(width, width)

    def settled_at(self) -> SettledAt:
        """Return when the timing of the next solution may end."""
        with self._lock:
            return SettledAt(half_width=self._apart, tied_half_width=self._tied, rivals=tuple(self._intervals))

    def add(self, record: Record) -> None:
        """Note the interval of a solution that passed with a time."""
        estimate = (record.timing or {}).get("speedup") or {}
        low, high = estimate.get("low"), estimate.get("high")
        if record.speedup is not None and low is not None and high is not None:
            with self._lock:
                self._intervals.append((low, high))

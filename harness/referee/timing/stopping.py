"""Decide when timing ends: by interval width, progress, or time spent.

Pure functions of numbers. A width is a difference of logs (0.005 is about 0.5 %); times are in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from harness.core.stats import SpeedupEstimate
from harness.core.task import SettledAt


class StoppingRule(Protocol):
    """A rule that says whether timing may end.

    It takes one number after each pair of bursts.
    """

    @property
    def name(self) -> str:
        """Name of the rule in the record."""
        ...

    def add(self, value: float) -> None: ...

    @property
    def finished(self) -> bool: ...


class NarrowInterval:
    """End once the interval's half width (difference of logs) is at most `target`.

    Checking an interval repeatedly stops at lucky ones and costs coverage: 92 % to 95 % remain if it is checked after
    every other pair from the fourth on. Waiting for a second narrow interval in a row was rejected: same coverage, 6 %
    to 8 % smaller errors, 15 % more pairs (simulated in `tests/unit/core/test_stats.py`).
    """

    name = "interval"

    def __init__(self, target: float = 0.005) -> None:
        if not target > 0.0:
            raise ValueError("the target width must be above 0")
        self._target = target
        self._finished = False

    def add(self, value: float) -> None:
        self._finished = value <= self._target

    @property
    def finished(self) -> bool:
        return self._finished


class Stagnation:
    """End once `window` pairs shrank the half width by less than `least` of itself.

    Scatter alone shrinks with the square root of the number of pairs. With the default window the rule fires from about
    25 pairs on, and earlier only if new pairs widen the interval.
    """

    name = "stagnation"

    def __init__(self, window: int = 6, least: float = 0.10) -> None:
        if window < 2 or not 0.0 < least < 1.0:
            raise ValueError("the window must have at least 2 pairs, and the least shrinkage must lie between 0 and 1")
        self._window = window
        self._least = least
        self._widths: list[float] = []

    def add(self, value: float) -> None:
        self._widths.append(value)

    @property
    def finished(self) -> bool:
        if len(self._widths) <= self._window:
            return False
        before, now = self._widths[-1 - self._window], self._widths[-1]
        return now > before * (1.0 - self._least)


class Budget:
    """End once the seconds spent reach the limit."""

    name = "budget"

    def __init__(self, limit_s: float) -> None:
        if not limit_s > 0.0:
            raise ValueError(f"the budget must be above 0 s, not {limit_s}")
        self._limit_s = limit_s
        self._spent_s = 0.0

    def add(self, value: float) -> None:
        self._spent_s += value

    @property
    def finished(self) -> bool:
        return self._spent_s >= self._limit_s


GROUP_FLOOR = 0.1
"""Least noise floor, as a difference of logs, of a speedup whose timing a group ended. With that of longer timing,
1.4 % of simulated twins of references were called faster (`tests/benchmarks/bench_groups.py`): a GPU changes its speed
between rounds, and two rounds do not show that.
"""


class GroupSettled:
    """End once more timing would change nothing for a group (`core.task.SettledAt`)."""

    name = "group"

    def __init__(self, at: SettledAt) -> None:
        self._at = at
        self.finished = False

    def add(self, estimate: SpeedupEstimate) -> None:
        low, high, width = estimate.low, estimate.high, estimate.half_width
        if low is None or high is None or width is None:
            return
        apart = all(high < other_low or other_high < low for other_low, other_high in self._at.rivals)
        self.finished = width <= (self._at.half_width if apart else self._at.tied_half_width)


class Stopping:
    """The usual rules together, over one growing series of pairs."""

    def __init__(
        self,
        *,
        budget_s: float,
        target: float = 0.005,
        least_pairs: int = 4,
        window: int = 6,
        settled_at: SettledAt | None = None,
    ) -> None:
        """Set up the rules.

        Args:
            budget_s: Limit of the seconds spent.
            target: Half width at which the interval is narrow enough.
            least_pairs: Number of pairs before widths count.
            window: Pairs over which stagnation is measured.
            settled_at: When timing may end for a group, also with fewer pairs.
        """
        self._interval = NarrowInterval(target)
        self._stagnation = Stagnation(window)
        self._budget = Budget(budget_s)
        self._least_pairs = least_pairs
        self._group = None if settled_at is None else GroupSettled(settled_at)

    def add(self, estimate: SpeedupEstimate, spent_s: float) -> str | None:
        """Add the estimate over all pairs and the seconds that the newest pair took.

        Returns:
            The name of the rule that fired, or None.
        """
        width = estimate.half_width
        if width is not None and estimate.pairs >= self._least_pairs:
            self._interval.add(width)
            self._stagnation.add(width)
        self._budget.add(spent_s)
        if self._group is not None:
            self._group.add(estimate)
            if self._group.finished:
                return self._group.name
        fired: Sequence[StoppingRule] = (self._interval, self._stagnation, self._budget)
        return next((rule.name for rule in fired if rule.finished), None)

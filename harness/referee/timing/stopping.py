"""When measuring may end: rules over the width of a speedup's interval and over the seconds spent.

Imports `stats` alone. Pure: numbers in, "finished" out; either side may use it, the referee does. A width is a
difference of logs (0.005 is about 0.5 %), a time is seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from harness.core.stats import SpeedupEstimate


class StoppingRule(Protocol):
    """Takes one number after each pair of bursts and says whether measuring may end."""

    @property
    def name(self) -> str:
        """What the record says fired."""
        ...

    def add(self, value: float) -> None: ...

    @property
    def finished(self) -> bool: ...


class NarrowInterval:
    """Ends when the interval's half width (difference of logs) is at most `target`.

    Looking again and again at an interval stops at lucky ones, which costs some coverage: 92 % to 95 % are left where
    it is looked at after every other pair from the fourth on. To wait for a second narrow one in a row was tried and
    left: as much coverage, errors smaller by 6 % to 8 %, for 15 % more pairs (`tests/unit/core/test_stats.py`
    simulates it).
    """

    name = "interval"

    def __init__(self, target: float = 0.005) -> None:
        if not target > 0.0:
            raise ValueError("a target width is above 0")
        self._target = target
        self._finished = False

    def add(self, value: float) -> None:
        self._finished = value <= self._target

    @property
    def finished(self) -> bool:
        return self._finished


class Stagnation:
    """Ends when over `window` pairs the half width has shrunk by less than `least` of itself.

    Scatter alone shrinks as one over the root of the pairs; over the default window the rule fires from about
    twenty-five pairs on, and earlier only where new pairs widen the interval.
    """

    name = "stagnation"

    def __init__(self, window: int = 6, least: float = 0.10) -> None:
        if window < 2 or not 0.0 < least < 1.0:
            raise ValueError("a window has at least 2 pairs, and the least shrinking lies between 0 and 1")
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
    """Ends when the seconds spent reach the limit."""

    name = "budget"

    def __init__(self, limit_s: float) -> None:
        if not limit_s > 0.0:
            raise ValueError(f"a budget is above 0 s, not {limit_s}")
        self._limit_s = limit_s
        self._spent_s = 0.0

    def add(self, value: float) -> None:
        self._spent_s += value

    @property
    def finished(self) -> bool:
        return self._spent_s >= self._limit_s


class Stopping:
    """The usual three rules together, over one growing series of pairs."""

    def __init__(self, *, budget_s: float, target: float = 0.005, least_pairs: int = 4, window: int = 6) -> None:
        """`least_pairs` must have been made before widths count; the other arguments are the rules' own."""
        self._interval = NarrowInterval(target)
        self._stagnation = Stagnation(window)
        self._budget = Budget(budget_s)
        self._least_pairs = least_pairs

    def add(self, estimate: SpeedupEstimate, spent_s: float) -> str | None:
        """Take in the estimate over all pairs and the seconds that the newest took; the rule that fired, or None."""
        width = estimate.half_width
        if width is not None and estimate.pairs >= self._least_pairs:
            self._interval.add(width)
            self._stagnation.add(width)
        self._budget.add(spent_s)
        fired: Sequence[StoppingRule] = (self._interval, self._stagnation, self._budget)
        return next((rule.name for rule in fired if rule.finished), None)

"""Stopping rules on floats. (`test_stats` measures simulated series until they fire.)"""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.core.stats import SpeedupEstimate
from harness.core.task import SettledAt
from harness.referee.timing.stopping import Budget, NarrowInterval, Stagnation, Stopping


class TestStopping:
    def test_narrow_now(self) -> None:
        rule = NarrowInterval(0.005)
        seen = []
        for width in (0.02, 0.004, 0.006, 0.004, 0.004):
            rule.add(width)
            seen.append(rule.finished)
        assert seen == [False, True, False, True, True]

    def test_stagnation_waits_for_a_window_that_gains_nothing(self) -> None:
        shrinking, flat = Stagnation(window=3), Stagnation(window=3)
        for k in range(1, 12):
            shrinking.add(1.0 / k)
            flat.add(0.1)
            assert not shrinking.finished
            assert flat.finished is (k > 3)

    def test_scatter_alone_stagnates_after_some_twenty_five_pairs(self) -> None:
        rule = Stagnation()
        for pairs in range(4, 60):
            rule.add(pairs**-0.5)
            if rule.finished:
                break
        assert 25 <= pairs <= 35

    def test_budget(self) -> None:
        rule = Budget(1.0)
        rule.add(0.6)
        assert not rule.finished
        rule.add(0.4)
        assert rule.finished

    def test_the_rule_that_fired_is_named(self) -> None:
        wide = SpeedupEstimate(speedup=1.0, low=0.9, high=1.1, confidence=0.95, pairs=5, method="student-t")
        narrow = SpeedupEstimate(speedup=1.0, low=0.999, high=1.001, confidence=0.95, pairs=5, method="student-t")
        none = SpeedupEstimate(speedup=1.0, low=None, high=None, confidence=0.95, pairs=1, method="single pair")
        early = SpeedupEstimate(speedup=1.0, low=0.999, high=1.001, confidence=0.95, pairs=2, method="student-t")
        stopping = Stopping(budget_s=100.0)
        assert [stopping.add(e, 0.1) for e in (none, early, early, wide, narrow)] == [None] * 4 + ["interval"]
        assert Stopping(budget_s=1.0).add(wide, 2.0) == "budget"
        stagnant = Stopping(budget_s=100.0, window=2)
        assert [stagnant.add(wide, 0.1) for _ in range(3)] == [None, None, "stagnation"]

    def test_a_group_is_settled_by_wider_intervals_that_meet_no_other(self) -> None:
        def about(speedup: float, width: float) -> SpeedupEstimate:
            low, high = speedup * math.exp(-width), speedup * math.exp(width)
            return SpeedupEstimate(speedup=speedup, low=low, high=high, confidence=0.95, pairs=2, method="student-t")

        at = SettledAt(half_width=0.1, tied_half_width=0.05, rivals=((1.0, 1.2), (3.0, 3.3)))
        seen = [(2.0, 0.09), (2.0, 0.11), (1.1, 0.09), (1.1, 0.04), (3.4, 0.06)]
        rules = [Stopping(budget_s=100.0, settled_at=at).add(about(*each), 0.1) for each in seen]
        assert rules == ["group", None, None, "group", None]
        assert Stopping(budget_s=100.0).add(about(2.0, 0.09), 0.1) is None, "without a group"
        alone = SpeedupEstimate(speedup=1.0, low=None, high=None, confidence=0.95, pairs=1, method="single pair")
        assert Stopping(budget_s=100.0, settled_at=at).add(alone, 0.1) is None

    @pytest.mark.parametrize("make", [lambda: NarrowInterval(0.0), lambda: Stagnation(1), lambda: Budget(0.0)])
    def test_senseless_settings_are_refused(self, make: Any) -> None:
        with pytest.raises(ValueError, match=r"above 0|at least"):
            make()

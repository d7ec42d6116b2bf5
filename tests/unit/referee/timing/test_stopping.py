"""Stopping rules on floats. (`test_stats` measures simulated series until they fire.)"""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.stats import SpeedupEstimate
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

    @pytest.mark.parametrize("make", [lambda: NarrowInterval(0.0), lambda: Stagnation(1), lambda: Budget(0.0)])
    def test_senseless_settings_are_refused(self, make: Any) -> None:
        with pytest.raises(ValueError, match=r"above 0|at least"):
            make()

"""Groups: when the timing of their next solution may end."""

from __future__ import annotations

import pytest

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import Status
from harness.results.reward import RewardPolicy, SpeedShape
from harness.runner.group import APART, TIED, WIDEST, Group


def passed(low: float | None, high: float | None, *, speedup: float | None = 1.0) -> Record:
    return Record(
        problem="level1/1",
        author="a",
        solution="a/1.py",
        device=DeviceKind.CUDA,
        workload="full",
        status=Status.passed,
        reason="right",
        speedup=speedup,
        timing={"speedup": {"low": low, "high": high}},
    )


def test_a_ranking_knows_the_intervals_before() -> None:
    group = Group.ranking()
    assert group.settled_at().rivals == ()
    group.add(passed(1.0, 1.2))
    group.add(passed(None, None))
    group.add(passed(1.0, 1.2, speedup=None))
    at = group.settled_at()
    assert (at.half_width, at.tied_half_width, at.rivals) == (APART, TIED, ((1.0, 1.2),))


@pytest.mark.parametrize(
    ("policy", "width"),
    [
        (RewardPolicy(), 0.02 / (0.7 / 4)),
        (RewardPolicy(shape=SpeedShape.linear), 0.02 / 0.7),
        (RewardPolicy(speed_weight=0.0), WIDEST),
        (RewardPolicy(speed_weight=0.001), WIDEST),
    ],
)
def test_rewards_are_settled_by_the_width_of_the_interval(policy: RewardPolicy, width: float) -> None:
    group = Group.rewards(policy, 0.02)
    group.add(passed(1.0, 1.2))
    at = group.settled_at()
    assert at.half_width == at.tied_half_width == pytest.approx(width)

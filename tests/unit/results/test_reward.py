"""Rewards: the order of the steps, rising with the speedup, nothing for what says nothing."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import VERDICT_FREE, Status
from harness.results.reward import RewardPolicy, SpeedShape, reward_of


def record(
    status: Status,
    *,
    speedup: float | None = None,
    low: float | None = None,
    high: float | None = None,
    labels: tuple[str, ...] = (),
) -> Record:
    return Record(
        problem="level1/1",
        author="ann",
        solution="ann/level1/1_x.py",
        device=DeviceKind.CUDA,
        workload="full",
        status=status,
        reason="so it was",
        speedup=speedup,
        timing=None if speedup is None else {"speedup": {"speedup": speedup, "low": low, "high": high}},
        labels=labels,
    )


def test_every_status_has_its_step_and_the_steps_rise() -> None:
    steps = [
        Status.disqualified,
        Status.compile_error,
        Status.crashed,
        Status.wrong_value,
        Status.low_precision,
        Status.passed,
    ]
    rewards = [reward_of(record(status)) for status in steps]
    assert rewards == [-1.0, 0.0, 0.05, 0.1, 0.2, 0.3]
    for status in Status:
        value = reward_of(record(status))
        assert (value is None) == (status in VERDICT_FREE)
        if value is not None and status is not Status.passed:
            assert value < 0.3


@given(
    shape=st.sampled_from(SpeedShape),
    slow=st.floats(1e-4, 1e4),
    fast=st.floats(1e-4, 1e4),
    weight=st.floats(0.0, 10.0),
    limit=st.floats(1.5, 100.0),
)
def test_faster_is_never_worth_less_and_the_slowest_pass_beats_every_failure(
    shape: SpeedShape, slow: float, fast: float, weight: float, limit: float
) -> None:
    slow, fast = sorted((slow, fast))
    policy = RewardPolicy(shape=shape, speed_weight=weight, speed_limit=limit)
    lower, higher = (reward_of(record(Status.passed, speedup=held), policy) for held in (slow, fast))
    assert lower is not None
    assert higher is not None
    assert policy.correct <= lower <= higher + 1e-12
    assert higher <= policy.correct + weight + 1e-12
    failed = reward_of(record(Status.low_precision), policy)
    assert failed is not None
    assert failed < lower


@pytest.mark.parametrize("shape", [SpeedShape.ratio, SpeedShape.log])
def test_parity_earns_half_of_what_speed_can(shape: SpeedShape) -> None:
    assert reward_of(record(Status.passed, speedup=1.0), RewardPolicy(shape=shape)) == pytest.approx(0.3 + 0.35)


def test_luck_is_not_rewarded_unless_asked_for() -> None:
    held = record(Status.passed, speedup=3.0, low=1.0)
    assert reward_of(held) == pytest.approx(0.3 + 0.7 / 2)
    assert reward_of(held, RewardPolicy(cautious=False)) == pytest.approx(0.3 + 0.7 * 0.75)


@pytest.mark.parametrize("cautious", [True, False])
def test_a_speedup_that_is_too_noisy_to_tell_earns_what_an_untimed_pass_earns(cautious: bool) -> None:
    policy = RewardPolicy(cautious=cautious)
    assert reward_of(record(Status.passed, speedup=7.75, low=2.0, high=30.0), policy) == policy.correct
    told = reward_of(record(Status.passed, speedup=2.4, low=2.0, high=3.0), policy)
    assert told is not None
    assert told > policy.correct + 0.4


def test_a_refused_label_earns_no_speed() -> None:
    held = record(Status.passed, speedup=50.0, labels=("unexplained_time",))
    assert reward_of(held) == 0.2
    assert reward_of(held, RewardPolicy(refused_labels=frozenset())) == pytest.approx(0.3 + 0.7 * 50 / 51)


def test_a_policy_that_turns_the_order_around_is_refused() -> None:
    with pytest.raises(ValueError, match="must not decrease"):
        RewardPolicy(wrong=0.5)
    with pytest.raises(ValueError, match="finite"):
        RewardPolicy(correct=float("nan"))
    with pytest.raises(ValueError, match="speed_limit"):
        RewardPolicy(speed_limit=1.0)


@pytest.mark.parametrize("shape", list(SpeedShape))
def test_a_shape_may_be_given_by_its_name_and_labels_in_any_collection(shape: SpeedShape) -> None:
    named = RewardPolicy(shape=shape.value, refused_labels=["static_buffer"])  # type: ignore[arg-type]
    assert named == RewardPolicy(shape=shape, refused_labels=frozenset({"static_buffer"}))
    assert named.of_speedup(2.0) == RewardPolicy(shape=shape).of_speedup(2.0)
    assert reward_of(record(Status.passed, speedup=50.0, labels=("static_buffer",)), named) == 0.2


def test_a_shape_that_there_is_none_of_is_refused_and_one_text_is_no_collection() -> None:
    for shape in ("cubic", None):
        with pytest.raises(ValueError, match="shape must be one of ratio, log, linear, not"):
            RewardPolicy(shape=shape)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"collection of strings, not one string: use \['static_buffer'\]"):
        RewardPolicy(refused_labels="static_buffer")  # type: ignore[arg-type]


def test_a_linear_shape_grows_with_the_speedup_up_to_its_limit() -> None:
    policy = RewardPolicy(shape=SpeedShape.linear, speed_limit=4.0)
    assert [policy.of_speedup(speedup) for speedup in (1.0, 3.0, 9.0)] == [0.25, 0.75, 1.0]


@pytest.mark.parametrize("shape", list(SpeedShape))
def test_no_speedup_changes_a_reward_faster_than_the_steepest(shape: SpeedShape) -> None:
    policy = RewardPolicy(shape=shape, speed_limit=4.0)
    logs = [n / 100 for n in range(-300, 301)]
    rewards = [policy.speed_weight * policy.of_speedup(math.exp(log)) for log in logs]
    slopes = [(after - before) / 0.01 for before, after in pairwise(rewards)]
    assert max(slopes) == pytest.approx(policy.steepest, rel=0.02)

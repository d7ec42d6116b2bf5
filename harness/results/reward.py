"""One number for a record, for training and search: how far the solution got, and how fast it is.

Pure; imports the vocabulary only. The shaping is spelled out in `RewardPolicy`, so that a run can be repeated and a
paper can quote it. It holds what every such number must: more correct is never worth less, faster is never worth
less, what was tampered with is worth least, and what says nothing about the solution is no number at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.core.record import Record
from harness.core.status import VERDICT_FREE, Status

NOT_BUILT = frozenset(
    {
        Status.syntax_error,
        Status.no_model_new,
        Status.import_error,
        Status.compile_error,
        Status.compile_timeout,
    }
)
"""Nothing could be run."""

NOT_RUN = frozenset(
    {
        Status.bad_constructor,
        Status.runtime_error,
        Status.cuda_error,
        Status.crashed,
        Status.timeout,
        Status.out_of_memory,
        Status.memory_error,
        Status.barrier_error,
    }
)
"""It was built, and no usable answer came of a call."""


class SpeedShape(StrEnum):
    """How a speedup s becomes a part between 0 and 1; `limit` is the policy's `speed_limit`. All rise with s."""

    ratio = "ratio"
    """s / (1 + s): 0.5 at parity, never saturated. The limit is not used."""
    log = "log"
    """log s from -log limit to +log limit, as 0 to 1: 0.5 at parity, equal factors are worth the same."""
    linear = "linear"
    """s / limit, at most 1: as in "0.3 for correct, plus the speedup"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPolicy:
    """The shaping. The reward is

        disqualified               for a record of that status
        not_built                  syntax, import and compile errors
        not_run                    built, but crashed, raised, hung, or accessed memory it may not
        wrong                      ran, and the answer is wrong in form, value or state, or a race was found
        low_precision              right, but only at a lower precision class than asked for
        correct + speed_weight * shape(speedup)     passed; `correct` alone where it was not timed
        None                       harness_error, unsupported, not_emulated: says nothing, leave the sample out

    Where findings of the host device came with an exception, the lower step of the two counts.
    `cautious` takes the lower end of the speedup's interval in place of the estimate, so that luck is not rewarded.
    A pass that carries one of `refused_labels` counts as `low_precision` does: right, and no speed. A shape may be
    given by its name, labels in any collection. Raises `ValueError` where the steps are not in rising order, or there
    is no such shape, and `TypeError` for what is no number, or for labels that are one text.
    """

    disqualified: float = -1.0
    not_built: float = 0.0
    not_run: float = 0.05
    wrong: float = 0.1
    low_precision: float = 0.2
    correct: float = 0.3
    speed_weight: float = 0.7
    shape: SpeedShape = SpeedShape.ratio
    speed_limit: float = 10.0
    cautious: bool = True
    refused_labels: frozenset[str] = frozenset({"unexplained_time", "coerced_device"})

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "shape", SpeedShape(self.shape))
        except ValueError:
            known = ", ".join(SpeedShape)
            raise ValueError(f"a reward's shape is one of {known}, not {self.shape!r:.60}") from None
        labels: object = self.refused_labels
        if isinstance(labels, str):
            raise TypeError(f"refused_labels are several texts, not one: [{labels!r:.60}]")
        object.__setattr__(self, "refused_labels", frozenset(self.refused_labels))
        steps = (self.disqualified, self.not_built, self.not_run, self.wrong, self.low_precision, self.correct)
        if not all(math.isfinite(step) for step in (*steps, self.speed_weight, self.speed_limit)):
            raise ValueError("a reward's parts are finite numbers")
        if list(steps) != sorted(steps):
            raise ValueError(
                "rewards must not fall from disqualified over not_built, not_run, wrong and low_precision to correct"
            )
        if self.speed_weight < 0 or self.speed_limit <= 1:
            raise ValueError("speed_weight is at least 0 and speed_limit above 1")

    def of_speedup(self, speedup: float) -> float:
        """The part between 0 and 1 that a speedup earns."""
        if self.shape is SpeedShape.ratio:
            return speedup / (1.0 + speedup)
        if self.shape is SpeedShape.linear:
            return min(1.0, speedup / self.speed_limit)
        span = math.log(self.speed_limit)
        return (min(span, max(-span, math.log(speedup))) + span) / (2.0 * span)


DEFAULT_POLICY = RewardPolicy()


def reward_of(record: Record, policy: RewardPolicy = DEFAULT_POLICY) -> float | None:
    """The record's reward under `policy`; None where it says nothing about the solution."""
    status = record.status
    if status in VERDICT_FREE:
        return None
    if status is not Status.passed:
        # A finding says more of a failure than the exception that ended it, but it is the submission's process that
        # says so: calls that raised are never worth more for what was found before.
        ended_as = record.evidence.get("ended_as")
        told = (status, Status(ended_as)) if isinstance(ended_as, str) and ended_as in set(Status) else (status,)
        return min(_step(item, policy) for item in told)
    if policy.refused_labels.intersection(record.labels):
        return policy.low_precision
    if record.speedup is None:
        return policy.correct
    low = _lower_end(record.timing) if policy.cautious else None
    return policy.correct + policy.speed_weight * policy.of_speedup(low or record.speedup)


def _step(status: Status, policy: RewardPolicy) -> float:
    """What a status is worth that is no pass."""
    if status is Status.disqualified:
        return policy.disqualified
    if status in NOT_BUILT:
        return policy.not_built
    if status in NOT_RUN:
        return policy.not_run
    if status is Status.low_precision:
        return policy.low_precision
    return policy.wrong


def _lower_end(timing: Mapping[str, Any] | None) -> float | None:
    held = (timing or {}).get("speedup")
    low = held.get("low") if isinstance(held, Mapping) else None
    usable = isinstance(low, int | float) and not isinstance(low, bool) and math.isfinite(low) and low > 0
    return float(low) if usable and low is not None else None

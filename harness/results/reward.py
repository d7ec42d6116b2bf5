"""Turn a record into one number for training and search.

The shaping is explicit in `RewardPolicy`, so that experiments are repeatable and can be cited. Invariants: more correct
is never worth less, faster is never worth less, a disqualified solution is worth least, and a record without a verdict
has no reward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from harness.core.record import Record
from harness.core.status import VERDICT_FREE, Status
from harness.results.scoring import is_noisy, main_baseline, scored

NOT_BUILT = (
    *(Status.syntax_error, Status.no_model_new, Status.import_error),
    *(Status.compile_error, Status.compile_timeout),
)
"""Nothing could run."""

NOT_RUN = (
    *(Status.bad_constructor, Status.runtime_error, Status.cuda_error, Status.crashed),
    *(Status.timeout, Status.out_of_memory, Status.memory_error, Status.barrier_error),
)
"""It was built, but no call gave a usable answer."""


class SpeedShape(StrEnum):
    """Maps a speedup s to a number from 0 to 1, rising with s, up to `speed_limit`."""

    ratio = "ratio"
    """s / (1 + s): 0.5 at parity, never saturates. Ignores the limit."""
    log = "log"
    """log s from -log limit to +log limit, mapped to 0 to 1: 0.5 at parity; equal factors add equal amounts."""
    linear = "linear"
    """s / limit, at most 1: as in "0.3 for correct, plus the speedup"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPolicy:
    """The shaping of rewards.

    | outcome | reward |
    |---|---|
    | status `disqualified` | `disqualified` |
    | syntax, import and compile errors | `not_built` |
    | built, but crashed, raised, hung, or accessed memory out of bounds | `not_run` |
    | ran, but form, value or state is wrong, or a data race was found | `wrong` |
    | right only at a lower precision class than required | `low_precision` |
    | passed without a time, or too noisy to tell (`scoring.NOISY_FACTOR`) | `correct` |
    | passed with a speedup | `correct + speed_weight * shape(speedup)` |
    | harness_error, unsupported, not_emulated | None: leave the sample out |

    If findings of the host device came with an exception, the lower of the two steps counts.

    Attributes:
        disqualified, not_built, not_run, wrong, low_precision, correct: The rewards in the table, in rising order.
        speed_weight: Factor of the speed's part, at least 0.
        shape: The speed's shape, or its name.
        speed_limit: Limit of the shape, above 1.
        cautious: Use the lower end of the speedup's interval, so that luck is not rewarded.
        refused_labels: A pass with one of these labels counts as `low_precision`. Any collection of names.

    Raises:
        ValueError: The steps do not rise from `disqualified` to `correct`, or a value or the shape is invalid.
        TypeError: A step is no number, or `refused_labels` is a single string.
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
            raise ValueError(f"shape must be one of {known}, not {self.shape!r:.60}") from None
        labels: object = self.refused_labels
        if isinstance(labels, str):
            raise TypeError(f"refused_labels must be a collection of strings, not one string: use [{labels!r:.60}]")
        object.__setattr__(self, "refused_labels", frozenset(self.refused_labels))
        steps = (self.disqualified, self.not_built, self.not_run, self.wrong, self.low_precision, self.correct)
        if not all(math.isfinite(step) for step in (*steps, self.speed_weight, self.speed_limit)):
            raise ValueError("all numbers of a reward policy must be finite")
        if list(steps) != sorted(steps):
            raise ValueError(
                "rewards must not decrease in the order disqualified, not_built, not_run, wrong, low_precision, correct"
            )
        if self.speed_weight < 0 or self.speed_limit <= 1:
            raise ValueError("speed_weight must be at least 0 and speed_limit above 1")

    def of_speedup(self, speedup: float) -> float:
        """Map a positive speedup to a number from 0 to 1 by the policy's shape."""
        if self.shape is SpeedShape.ratio:
            return speedup / (1.0 + speedup)
        if self.shape is SpeedShape.linear:
            return min(1.0, speedup / self.speed_limit)
        span = math.log(self.speed_limit)
        return (min(span, max(-span, math.log(speedup))) + span) / (2.0 * span)

    @property
    def steepest(self) -> float:
        """Largest change of a reward, divided by the change of log(speedup)."""
        if self.shape is SpeedShape.ratio:
            return self.speed_weight / 4.0
        return self.speed_weight * (1.0 if self.shape is SpeedShape.linear else 0.5 / math.log(self.speed_limit))


DEFAULT_POLICY = RewardPolicy()


def reward_of(record: Record, policy: RewardPolicy = DEFAULT_POLICY) -> float | None:
    """Return the reward of a record; None if it has no verdict on the solution."""
    status = record.status
    if status in VERDICT_FREE:
        return None
    if status is not Status.passed:
        # A finding says more about a failure than the exception, but the solution's own process reports it: a call
        # that raised is never worth more because of earlier findings.
        ended_as = record.evidence.get("ended_as")
        told = (status, Status(ended_as)) if isinstance(ended_as, str) and ended_as in set(Status) else (status,)
        return min(_step(item, policy) for item in told)
    if policy.refused_labels.intersection(record.labels):
        return policy.low_precision
    entry = scored(record, main_baseline(record))
    if entry.speedup is None or is_noisy(entry.low, entry.high):
        return policy.correct
    reached = entry.low if policy.cautious and entry.low is not None else entry.speedup
    return policy.correct + policy.speed_weight * policy.of_speedup(reached)


def _step(status: Status, policy: RewardPolicy) -> float:
    """Return the reward of a status other than `passed`."""
    if status is Status.disqualified:
        return policy.disqualified
    if status in NOT_BUILT:
        return policy.not_built
    if status in NOT_RUN:
        return policy.not_run
    if status is Status.low_precision:
        return policy.low_precision
    return policy.wrong

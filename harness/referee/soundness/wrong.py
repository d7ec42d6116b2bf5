"""Wrong answers and their trial.

If no call rejects a wrong answer, the problem can't tell it from a right one.

Trusted side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from harness.devices.out_of_memory import is_shortage
from harness.referee.correctness.tolerance import kernelbench_rule
from harness.referee.problem.stress_variants import OWN
from harness.referee.soundness.samples import Leaves, ReferenceCall

Answering = Callable[[ReferenceCall, Leaves], "Sequence[torch.Tensor] | None"]
"""Makes the outputs of a wrong answer from a call and the reference's outputs on other inputs of that variant.

None if it has no answer for that call.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One wrong answer; `rule` is its lint rule, `name` describes it.

    With `may_agree`, an answer with the reference's exact bits in every call is no mistake but another way to write the
    reference (a transposed symmetric result, a tile that no output reads).
    """

    rule: str
    name: str
    answer: Answering
    may_agree: bool = False


class Fate(StrEnum):
    """The result of trying a wrong answer."""

    REJECTED = "rejected"
    CRASHED = "crashed"
    AGREES = "agrees"
    """It had the reference's exact bits in every call."""
    PASSES = "passes"
    """It differed, and no call rejected it."""
    UNTRIED = "untried"
    """It had no answer for any call."""


@dataclass(slots=True)
class Trial:
    """The trial of one wrong answer over the calls.

    `differs_on_own` and `close_on_own` are of the calls on the problem's own inputs: whether one differed from the
    reference's bits, and whether KernelBench's rule accepts all of them.
    """

    wrong: Wrong
    fate: Fate | None = None
    tried: int = 0
    differed: bool = False
    seen: list[str] = field(default_factory=list)
    differs_on_own: bool = False
    close_on_own: bool = True

    def show(self, sample: ReferenceCall, other: Leaves) -> None:
        """Let it answer one more call."""
        try:
            leaves = self.wrong.answer(sample, other)
        except Exception as error:
            if is_shortage(error):
                raise
            # A mutant of the reference that can't run is not a solution.
            self.fate = Fate.CRASHED
            return
        if leaves is None:
            return
        self.tried += 1
        if sample.variant not in self.seen:
            self.seen.append(sample.variant)
        if sample.variant == OWN:
            same = len(leaves) == len(sample.own)
            self.differs_on_own = self.differs_on_own or not same or not sample.equals(leaves)
            self.close_on_own = self.close_on_own and same and all(map(kernelbench_rule, leaves, sample.own))
        if len(leaves) != len(sample.own) or sample.rejects(leaves):
            self.fate = Fate.REJECTED
        elif not self.differed:
            self.differed = not sample.equals(leaves)

    def conclude(self) -> Fate:
        """Its fate after the last call."""
        if self.fate is None:
            if not self.tried:
                self.fate = Fate.UNTRIED
            else:
                self.fate = Fate.PASSES if self.differed else Fate.AGREES
        return self.fate

    @property
    def kernelbench_accepts(self) -> bool:
        """Whether KernelBench's rule accepts this mistake on the problem's own inputs."""
        tried_on_own = OWN in self.seen and self.fate is not Fate.CRASHED
        return tried_on_own and self.close_on_own and (self.differs_on_own or not self.wrong.may_agree)

    @property
    def survived(self) -> bool:
        """Whether the problem accepts it."""
        fate = self.conclude()
        return fate is Fate.PASSES or (fate is Fate.AGREES and not self.wrong.may_agree)


def run_trials(
    wrongs: Sequence[Wrong], samples: Iterable[ReferenceCall], other: Callable[[ReferenceCall], Leaves]
) -> tuple[Trial, ...]:
    """Show every call to every wrong answer that is not rejected yet.

    Stops as soon as all are rejected.
    """
    trials = tuple(Trial(wrong=wrong) for wrong in wrongs)
    for sample in samples:
        pending = [trial for trial in trials if trial.fate is None]
        if not pending:
            break
        elsewhere = other(sample)
        for trial in pending:
            trial.show(sample, elsewhere)
        del sample, elsewhere  # free the memory before the next sample: it may be a tenth of a GPU's
    for trial in trials:
        trial.conclude()
    return trials

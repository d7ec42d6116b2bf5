"""Wrong solutions and how they are tried: some call must reject each, or the problem can't tell it from a right one.

Control layer; trusted side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from harness.devices.out_of_memory import is_shortage
from harness.referee.soundness.samples import Leaves, ReferenceCall

Answering = Callable[[ReferenceCall, Leaves], "Sequence[torch.Tensor] | None"]
"""From a call, and the reference's outputs on other inputs of the same variant, to the outputs that the wrong solution
gives; None where it has none for that call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One wrong solution. `rule` is the lint rule that it belongs to, `name` says what it does.

    With `may_agree`, giving the reference's very bits in every call makes it no mistake but another way to write the
    reference (a transposed symmetric result, a tile that no output reads).
    """

    rule: str
    name: str
    answer: Answering
    may_agree: bool = False


class Fate(StrEnum):
    """What became of a wrong solution."""

    REJECTED = "rejected"
    CRASHED = "crashed"
    AGREES = "agrees"
    """Gave the reference's own bits in every call."""
    PASSES = "passes"
    """Differed, and no call rejected it."""
    UNTRIED = "untried"
    """Had an answer for no call."""


@dataclass(slots=True)
class Trial:
    """One wrong solution on its way through the calls."""

    wrong: Wrong
    fate: Fate | None = None
    tried: int = 0
    differed: bool = False
    seen: list[str] = field(default_factory=list)

    def show(self, sample: ReferenceCall, other: Leaves) -> None:
        """Let it answer one more call."""
        try:
            leaves = self.wrong.answer(sample, other)
        except Exception as error:
            if is_shortage(error):
                raise
            # A mutant of the reference that can't run is no solution at all.
            self.fate = Fate.CRASHED
            return
        if leaves is None:
            return
        self.tried += 1
        if sample.variant not in self.seen:
            self.seen.append(sample.variant)
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
    def survived(self) -> bool:
        """Whether the problem takes it for right."""
        fate = self.conclude()
        return fate is Fate.PASSES or (fate is Fate.AGREES and not self.wrong.may_agree)


def run_trials(
    wrongs: Sequence[Wrong], samples: Iterable[ReferenceCall], other: Callable[[ReferenceCall], Leaves]
) -> tuple[Trial, ...]:
    """Show every call to every wrong solution that is not rejected yet; stop where none is left."""
    trials = tuple(Trial(wrong=wrong) for wrong in wrongs)
    for sample in samples:
        pending = [trial for trial in trials if trial.fate is None]
        if not pending:
            break
        elsewhere = other(sample)
        for trial in pending:
            trial.show(sample, elsewhere)
        del sample, elsewhere  # before the next is made: the largest problems take a tenth of a GPU each time
    for trial in trials:
        trial.conclude()
    return trials

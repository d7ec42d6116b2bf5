"""Find races on the host device by another order of blocks and threads.

Trusted side; used after all answers were correct in the first order. The second order also has other values in
unwritten shared memory. A correct solution gives the same values in both, exactly, or within rounding if it uses
atomics: a GPU leaves their order open. The values are compared here, from the referee's buffers; the contestant only
makes the calls.

A difference convicts only if it depends on the order. A third run, in the first order again, decides that. A solution
whose calls always differ (a call counter, its own random numbers) gets a label.

A kernel that reads unwritten shared memory may ignore the value. Such a read convicts only if an answer changes with
NaN, large or large negative numbers there; else it is a label. See guides/design/tolerances.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.core.status import Failure, Status
from harness.protocol.messages import BurstDone, CallMode
from harness.referee.contestants.findings import failure_of_reports, is_of_unset_shared
from harness.referee.correctness.verifier import Verifier, overall
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.workspace import Workspace

FIRST, SECOND = 0, 1
"""Ascending and descending order of blocks and threads."""

LARGE, NEGATIVE = 2, 4
"""The first order, with large or large negative numbers in unwritten shared memory, which is NaN otherwise."""

UNSET_SHARED = "reads_unset_shared"
"""Label: a kernel reads unwritten shared memory, and no answer depends on it."""

REPEATED_CALLS = 2
"""Number of repeated calls; each costs as much as a call of the verification."""

VARIES = "varies_between_calls"
"""Label: the same inputs in the same order do not give the same values twice; all of them are correct."""

_ATOMICS = re.compile(r"\batomic|\b(?:atom|red)\.|\bcub::|\bthrust::|atomic_(?:add|max|min|cas|xchg)")


def uses_atomics(source: str) -> bool:
    """Return whether a solution's source uses atomics.

    With atomics, values may differ by rounding.
    """
    return _ATOMICS.search(source) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDifference:
    """A difference between two runs of one call.

    `count` of `of` values of the tensor `name` differ, the first at `place`.
    """

    name: str
    count: int
    of: int
    place: tuple[int, ...]
    values: tuple[float, float]

    def sentence(self) -> str:
        first, second = self.values
        return (
            f"{self.count} of {self.of} values of {self.name} differ, first at {list(self.place)}: "
            f"{first:.6g} in one order, {second:.6g} in the other"
        )


@dataclass(slots=True)
class SecondSchedule:
    """One solution's calls in another order.

    `ask` makes the calls of these turns in a schedule. `evidence` and `labels` collect the observations.
    """

    workspace: Workspace
    verifier: Verifier
    ask: Callable[[Sequence[PlannedCall], int], BurstDone]
    atomics: bool
    evidence: dict[str, Any] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)

    def check(self, indices: Sequence[int]) -> tuple[Failure | None, BurstDone]:
        """Repeat the calls on these sets in another order and compare the answers.

        The answers in the first order are still in the arena.

        Returns:
            The failure or None, and the claims of the last burst.
        """
        first = {index: self._answers(index) for index in indices}
        done = self._repeat(indices, SECOND)
        if failure := failure_of_reports([held for held in done.reports if not is_of_unset_shared(held)]):
            return failure, done
        wrong = self._wrong(indices, done)
        second = {index: self._answers(index) for index in indices}
        difference = next((d for index in indices if (d := self._difference(first[index], second[index]))), None)
        self.evidence = {
            "calls": len(indices),
            "atomics": self.atomics,
            "equal": difference is None,
            "difference": None if difference is None else difference.sentence(),
        }
        if wrong is None and (difference is None or self.atomics):
            return None, done
        done = self._repeat(indices, FIRST)
        wrong_again = self._wrong(indices, done)
        if wrong is not None:
            if wrong_again is not None:
                return wrong_again, done
            self.evidence["first_order"] = "right again"
            return _convict(f"right in one order of blocks and threads, wrong in another: {wrong.reason}"), done
        assert difference is not None
        steady = not any(self._difference(first[index], self._answers(index)) for index in indices)
        self.evidence["first_order"] = "equal again" if steady else "different again"
        if not steady:
            self.labels.append(VARIES)
            return None, done
        return _convict(f"values depend on the order of blocks and threads: {difference.sentence()}"), done

    def unset(self, indices: Sequence[int], reports: Sequence[Mapping[str, Any]]) -> Failure | None:
        """Judge `reports` of reads of unwritten shared memory.

        The answers on these sets are correct and in the arena.

        Returns:
            The failure if an answer depends on such a read, else None.
        """
        first = {index: self._answers(index) for index in indices}
        for schedule in (LARGE, NEGATIVE):
            done = self._repeat(indices, schedule)
            others = [held for held in done.reports if not is_of_unset_shared(held)]
            if failure := failure_of_reports(others):
                return failure
            differ = not self.atomics and any(self._difference(first[i], self._answers(i)) for i in indices)
            if differ or self._wrong(indices, done) is not None:
                return failure_of_reports(reports)
        self.labels.append(UNSET_SHARED)
        return None

    def _repeat(self, indices: Sequence[int], schedule: int) -> BurstDone:
        self.workspace.redraw_all(indices)
        return self.ask(_planned_calls(indices), schedule)

    def _wrong(self, indices: Sequence[int], done: BurstDone) -> Failure | None:
        return overall(self.verifier.check(_planned_calls(indices), done, with_reference=False))

    def _answers(self, index: int) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self.workspace.judged(index).items()}

    def _difference(self, first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> ScheduleDifference | None:
        return next((d for name, tensor in first.items() if (d := difference_of(name, tensor, second[name]))), None)


def difference_of(name: str, first: torch.Tensor, second: torch.Tensor) -> ScheduleDifference | None:
    """Find the values in which two tensors of one shape and dtype differ.

    NaN equals NaN, and -0 equals +0.

    Returns:
        The difference, or None.
    """
    if first.is_floating_point() and first.element_size() == 1:
        first, second = first.float(), second.float()
    unequal = first != second
    if first.is_floating_point() or first.is_complex():
        unequal &= ~(first.isnan() & second.isnan())
    count = int(unequal.sum())
    if count == 0:
        return None
    place = tuple(int(i) for i in unequal.nonzero()[0])
    values = (_number(first[place]), _number(second[place]))
    return ScheduleDifference(name=name, count=count, of=first.numel(), place=place, values=values)


def _number(value: torch.Tensor) -> float:
    return float(value.real if value.is_complex() else value)


def _planned_calls(indices: Sequence[int]) -> list[PlannedCall]:
    return [PlannedCall(index=index, mode=CallMode.COLD) for index in indices]


def _convict(reason: str) -> Failure:
    return Failure(status=Status.data_race, reason=reason[:450], evidence={"rule": "second_schedule"})

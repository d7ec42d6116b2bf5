"""Repeat a call with one input element changed: does the output follow?

Trusted side. All other calls have entirely new values. So a solution that caches answers by a few input values, their
sum or their address never meets a case where its cache is wrong. Here the addresses and all values but one are those of
a call that it just answered. The changed element affects the truth by more than the limits allow; if no single element
does, as many are changed as needed. See guides/design/tolerances.md.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.core.choices import PrecisionClass
from harness.core.status import Failure, Status
from harness.devices.layout import unexpanded
from harness.protocol.messages import BurstDone, CallMode
from harness.referee.correctness.tolerance import LIMITS, UNLIMITED, LongSum, compare, limits_for
from harness.referee.correctness.verifier import CallVerdict, Verifier
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.stress_variants import OWN, restrictions
from harness.referee.problem.workspace import Workspace

OUTLIERS = (10.0, 1000.0)
"""An element is set to one to two times so many standard deviations of its tensor, if the problem allows large values.
"""

SHARES = (0.01, 0.5)
"""Shares of a tensor that are mirrored about its mean if no single element is enough."""

SAMPLE = 4096

ATTEMPTS = 3
MOST_ATTEMPTS = 6
ENOUGH_S = 0.1
"""Each input (at most `MOST_ATTEMPTS`) is changed once. If that took less than `ENOUGH_S` seconds, more attempts
follow, up to `ATTEMPTS`: a cache that keys on part of the values may include the changed one.
"""

DRAWS = 100
"""Most draws of another value for an element: bfloat16 has 128 values between a number and its double."""

Ask = Callable[[Sequence[PlannedCall]], BurstDone]


@dataclass(slots=True, kw_only=True)
class PerturbedInput:
    """The check of one solution.

    `evidence` holds the changes, `set_to` the values that elements were set to so far.
    """

    workspace: Workspace
    verifier: Verifier
    ask: Ask
    secret: random.Random
    required: PrecisionClass
    evidence: dict[str, Any] = field(default_factory=dict)
    set_to: set[float] = field(default_factory=set)

    def check(self, answered: Sequence[int]) -> Failure | None:
        """Repeat an answered call with an element of an input changed.

        The inputs of these calls must still be in place.

        Args:
            answered: Indices of the input sets of those calls.

        Returns:
            The failure, or None.
        """
        if self.workspace.traits.mutates_inputs:
            return None
        index = next((index for index in answered if self.workspace.variant(index) == OWN), None)
        if index is None:
            index = answered[0]
            self.workspace.draw(index)
            self._call(index)
        free = self._free(index)
        self.secret.shuffle(free)
        begin = time.perf_counter()
        for attempt in range(min(max(ATTEMPTS, len(free)), MOST_ATTEMPTS) if free else 0):
            if (failure := self._check(index, free[attempt % len(free) :] + free)) is not None:
                return failure
            if attempt + 1 >= len(free) and time.perf_counter() - begin > ENOUGH_S:
                break
        return None

    def _free(self, index: int) -> list[int]:
        """Return the numbers of the inputs that may be changed."""
        leaves = [
            (number, leaf)
            for number, leaf in enumerate(map(unexpanded, self.workspace.tensors(self.workspace.sets[index].inputs)))
            if leaf.is_floating_point() and leaf.numel() > 1 and leaf.element_size() > 1
        ]
        reasons = restrictions([leaf for _, leaf in leaves])
        return [number for (number, _), reason in zip(leaves, reasons, strict=True) if reason is None]

    def _check(self, index: int, order: Sequence[int]) -> Failure | None:
        truth = self.workspace.truth(index, ()).answer.leaves
        # In the outputs' own types: two float64 truths at once might not fit into memory.
        before = [leaf.to(dtype) for leaf, dtype in zip(truth, self.workspace.traits.dtypes, strict=True)]
        del truth
        answered = self.workspace.output_digests([index])
        if (what := self._change(index, before, order)) is None:
            return None
        self.evidence.setdefault("changed", []).append(what)
        del before
        self.workspace.amend(index)
        planned_calls, done = self._call(index)
        (finding,) = self.verifier.check(planned_calls, done, with_reference=False)
        failure = finding.failure
        if (failure is not None or self._was_let_pass(finding)) and self.workspace.output_digests([index]) == answered:
            self.evidence["stale"] = True
            return Failure(
                status=Status.wrong_value,
                reason=f"returns an earlier call's answer although {what} changed",
                evidence={**(failure.evidence if failure else {}), "refresh": dict(self.evidence)},
            )
        return failure

    def _was_let_pass(self, finding: CallVerdict) -> bool:
        """Return whether the answer exceeds the class's limits but not the raised ones.

        An answer that keeps the same bits although its inputs changed this much ignores them, however loose the limits
        are.
        """
        if self.required is PrecisionClass.FP32 or finding.judgement is None:
            return False
        own = LIMITS[self.required]
        errors = [(held["rms_error"], held["max_error"]) for held in finding.judgement.evidence["outputs"]]
        return any(rms is not None and not own.admits(rms, largest) for rms, largest in errors)

    def _call(self, index: int) -> tuple[list[PlannedCall], BurstDone]:
        self.workspace.hold_back([index])
        self.workspace.mask([index])
        self.workspace.device.synchronize()
        planned_calls = [PlannedCall(index=index, mode=CallMode.COLD)]
        return planned_calls, self.ask(planned_calls)

    def _unlike_before(self, mean: float, least: float, dtype: torch.dtype) -> float:
        """Return a new value, one to two times `least` beyond the mean.

        No element was set to it before. Equal values would leave open which element is the largest of a row. If the
        type has no other value left, one repeats.
        """
        for _ in range(DRAWS):
            value = float(torch.tensor(mean + (1.0 + self.secret.random()) * least, dtype=dtype))
            if value not in self.set_to:
                break
        self.set_to.add(value)
        return value

    def _change(self, index: int, before: Sequence[torch.Tensor], order: Sequence[int]) -> str | None:
        """Change an input by as little as affects the truth.

        It is the first input of `order` in which a change has an effect. Returns the change in words; None if nothing
        may be changed.
        """
        paths = self.workspace.tree.paths("inputs")
        leaves = self.workspace.tensors(self.workspace.sets[index].inputs)
        rules = self.workspace.problem.rules.variants
        for number in order if rules else ():
            leaf = unexpanded(leaves[number])
            flat = leaf.reshape(-1)  # a copy if the elements lie in another order, or with gaps
            sample = flat[:: max(1, flat.numel() // SAMPLE)].double()
            mean, spread = float(sample.mean()), float(sample.std())
            place = self.secret.randrange(flat.numel())
            kept = flat[place].clone()
            # In a run on the problem's own inputs, values are only mirrored about their mean.
            for outlier in OUTLIERS if "large_values" in self.workspace.problem.rules.stress else ():
                flat[place] = self._unlike_before(mean, outlier * spread, flat.dtype)
                _write_back(flat, leaf)
                if self._matters(index, before):
                    return f"one element of {paths[number]}"
            flat[place] = kept
            for share in SHARES:
                step = round(1 / share)
                flat[place % step :: step] = 2 * mean - flat[place % step :: step]
                _write_back(flat, leaf)
                if self._matters(index, before):
                    return f"one in {step} elements of {paths[number]}"
        return None

    def _matters(self, index: int, before: Sequence[torch.Tensor]) -> bool:
        """Return whether the earlier answer is wrong for the inputs as they are now."""
        now = self.workspace.truth(index, ()).answer
        pairs = zip(now.pointed(before), now.valued(now).leaves, strict=True)
        limits = limits_for(self.required, longest=LongSum(terms=self.workspace.traits.longest_sum))
        # Without limits: searching places beyond them costs more than the comparison and is not needed here.
        return any(not compare(old, new, limits=UNLIMITED).within(limits) for old, new in pairs)


def _write_back(flat: torch.Tensor, leaf: torch.Tensor) -> None:
    """Write the values of `leaf.reshape(-1)` to `leaf`, unless they share memory."""
    if flat.data_ptr() != leaf.data_ptr():
        leaf.copy_(flat.view(leaf.shape))

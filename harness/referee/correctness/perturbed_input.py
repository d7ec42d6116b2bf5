"""An earlier call made again with one influential element changed: does the answer follow?

Trusted side; used by `session`. Every other call has values that are new throughout, so that a solution that remembers
answers by a few of the inputs' values, their sum or their address is never asked what it knows. Here it is: the
addresses and all values but one are those of a call that it has just answered. The element is one on which the truth
depends by more than the limits allow; where no single one does, as many are changed as it takes.
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
from harness.protocol.messages import BurstDone, CallMode
from harness.referee.correctness.tolerance import LIMITS, UNLIMITED, compare, limits_for
from harness.referee.correctness.verifier import CallVerdict, Verifier
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.stress_variants import OWN, restrictions
from harness.referee.problem.workspace import Workspace

OUTLIERS = (10.0, 1000.0)
"""What one element is set to, once to twice so many spreads of its tensor, where the problem allows large values."""

SHARES = (0.01, 0.5)
"""Parts of a tensor that are mirrored about its mean where no single element is enough."""

SAMPLE = 4096

ATTEMPTS = 3
MOST_ATTEMPTS = 6
ENOUGH_S = 0.1
"""Every input (six of them at most) is changed once, and where that took less than this, one after another so often:
whoever remembers by a part of the values may have the changed one in it."""

DRAWS = 100
"""How often another value is drawn for an element at most: between one value and its double bfloat16 has 128."""

Ask = Callable[[Sequence[PlannedCall]], BurstDone]


@dataclass(slots=True, kw_only=True)
class PerturbedInput:
    """The check of one solution. `evidence` says what was changed, `set_to` what elements were set to so far."""

    workspace: Workspace
    verifier: Verifier
    ask: Ask
    secret: random.Random
    required: PrecisionClass
    evidence: dict[str, Any] = field(default_factory=dict)
    set_to: set[float] = field(default_factory=set)

    def check(self, answered: Sequence[int]) -> Failure | None:
        """Ask for one of the sets `answered`, whose inputs still lie there, once more with an element changed."""
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
        """Numbers of the inputs that may be changed."""
        leaves = [
            (number, leaf)
            for number, leaf in enumerate(self.workspace.tensors(self.workspace.sets[index].inputs))
            if leaf.is_floating_point() and leaf.numel() > 1 and leaf.element_size() > 1
        ]
        reasons = restrictions([leaf for _, leaf in leaves])
        return [number for (number, _), reason in zip(leaves, reasons, strict=True) if reason is None]

    def _check(self, index: int, order: Sequence[int]) -> Failure | None:
        truth = self.workspace.truth(index, ()).answer.leaves
        # In the outputs' own types: in float64 two truths at once might not fit.
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
                reason=f"gives an earlier call's answer when {what} has changed",
                evidence={**(failure.evidence if failure else {}), "refresh": dict(self.evidence)},
            )
        return failure

    def _was_let_pass(self, finding: CallVerdict) -> bool:
        """Whether the answer lies outside of the class's own limits, and inside of those that rounding loosens.

        Decision: who gives the same bits for inputs so much changed has not looked at them, however loose the limits.
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
        """A value from once to twice `least` beyond the mean that no element was set to before, where the type has one
        left: of equal ones it would be left open which is the largest of a row.
        """
        for _ in range(DRAWS):
            value = float(torch.tensor(mean + (1.0 + self.secret.random()) * least, dtype=dtype))
            if value not in self.set_to:
                break
        self.set_to.add(value)
        return value

    def _change(self, index: int, before: Sequence[torch.Tensor], order: Sequence[int]) -> str | None:
        """Change as little as makes a difference to the truth, in the first input of `order` in which something does;
        what that was, None where nothing may be changed.
        """
        paths = self.workspace.tree.paths("inputs")
        leaves = self.workspace.tensors(self.workspace.sets[index].inputs)
        rules = self.workspace.problem.rules.variants
        for number in order if rules else ():
            flat = leaves[number].view(-1)
            sample = flat[:: max(1, flat.numel() // SAMPLE)].double()
            mean, spread = float(sample.mean()), float(sample.std())
            place = self.secret.randrange(flat.numel())
            kept = flat[place].clone()
            for outlier in OUTLIERS if "large_values" in rules else ():
                flat[place] = self._unlike_before(mean, outlier * spread, flat.dtype)
                if self._matters(index, before):
                    return f"one element of {paths[number]}"
            flat[place] = kept
            for share in SHARES:
                step = round(1 / share)
                flat[place % step :: step] = 2 * mean - flat[place % step :: step]
                if self._matters(index, before):
                    return f"one in {step} elements of {paths[number]}"
        return None

    def _matters(self, index: int, before: Sequence[torch.Tensor]) -> bool:
        """Whether the answer of before is no right one on the inputs as they are now."""
        now = self.workspace.truth(index, ()).answer.leaves
        limits = limits_for(self.required)
        # Compared to no limit: what is looked for beyond them costs more than the comparison, and nobody reads it here.
        return any(not compare(old, new, limits=UNLIMITED).within(limits) for old, new in zip(before, now, strict=True))

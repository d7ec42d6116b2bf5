"""The calls that answers are tried on, and the rule that judges an answer.

Trusted side. There are inputs of every variant with their truth. The rule is that of the correctness stage: every
output of an answer must lie within the problem's precision class. A wrong answer is rejected if one call of any variant
rejects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from harness.core.choices import PrecisionClass
from harness.core.problem import Problem
from harness.devices.device import Device
from harness.protocol.tensor_tree import TreeSpec, flatten
from harness.referee.correctness.tolerance import (
    UNLIMITED,
    ErrorLimits,
    LongSum,
    TensorComparison,
    compare,
    limits_for,
    longest_sum,
    of_kinds,
    roundable,
    sensitivities,
)
from harness.referee.problem.answer import Answer
from harness.referee.problem.inputs import draw
from harness.referee.problem.loader import ReferenceModule
from harness.referee.problem.stress_variants import checked_variants
from harness.referee.problem.truth import Reference

OWN_DRAWS = 3
"""Draws of the problem's own inputs, the default of `--seeds`."""

Leaves = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCall:
    """One call: its inputs, the reference's float32 output, and the truth.

    Inputs are in slot order of `tree`. `own` is as returned; `truth` has the values that `answer` chose in
    place of indices.

    `errors` are those of the float32 reference, `limits` those that an answer must keep,
    `longest` the longest sum.
    """

    variant: str
    inputs: Leaves
    tree: TreeSpec
    seed: int
    own: Leaves
    truth: Leaves
    answer: Answer
    errors: tuple[TensorComparison, ...]
    limits: tuple[ErrorLimits, ...]
    longest: LongSum
    source: str
    required: PrecisionClass
    nearby: Callable[[], Iterator[tuple[float, Leaves]]]
    """Truths of inputs and weights rounded to the class; they loosen the limits for answers beyond them."""
    _loosened: list[ErrorLimits] = field(default_factory=list)

    def rejects(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Whether these outputs are judged wrong. Another shape or dtype is always wrong."""
        if any(a.shape != r.shape or a.dtype != r.dtype for a, r in zip(leaves, self.own, strict=True)):
            return True
        # `judge` fails an answer if and only if an output exceeds its limits. With UNLIMITED, `compare` skips the
        # search for places and patterns, which costs more than the comparison and is not used here. The tensors are
        # made contiguous, as in a judgement, because the GPU's comparison would copy anything else.
        choices = self.answer.choices
        found = [
            compare(a.contiguous(), t, reference=None if n in choices else r, limits=UNLIMITED)
            for n, (a, t, r) in enumerate(zip(self.answer.pointed(leaves), self.truth, self.own, strict=True))
        ]
        limits = self._loosest() if roundable(found, self.limits, self.required) else self.limits
        return not all(c.within(limit) for c, limit in zip(found, limits, strict=True))

    def _loosest(self) -> Sequence[ErrorLimits]:
        """The limits including the effect of rounding these inputs.

        That effect is computed for the first answer.
        """
        if not self._loosened:
            self._loosened.extend(self.limits)
            for worst in sensitivities(self.truth, self.nearby(), self.required):
                both = zip(self.errors, worst, strict=True)
                self._loosened[:] = [limits_for(self.required, e, s, longest=self.longest) for e, s in both]
        return self._loosened

    def equals(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Whether these outputs equal the reference's bit for bit (NaN equals NaN)."""
        return all(
            a.shape == r.shape and a.dtype == r.dtype and torch.allclose(a, r, rtol=0.0, atol=0.0, equal_nan=True)
            if a.is_floating_point() or a.is_complex()
            else torch.equal(a, r)
            for a, r in zip(leaves, self.own, strict=True)
        )


def make_sample(
    variant: str,
    inputs: Sequence[torch.Tensor],
    tree: TreeSpec,
    seed: int,
    oracle: Reference,
    required: PrecisionClass,
) -> ReferenceCall:
    """Compute the truth and the reference's output on these inputs.

    Raises any exception of the reference.
    """
    truth = oracle.truth(inputs, tree, seed)
    own: Answer = oracle.answer(inputs, tree, seed)

    def values(answer: Answer) -> Leaves:
        return tuple(leaf.contiguous() for leaf in oracle.told(answer.valued(truth.answer)))

    exact = values(truth.answer)
    errors = of_kinds(
        [compare(r, t, limits=UNLIMITED) for r, t in zip(values(own), exact, strict=True)], truth.answer.kinds
    )
    longest = longest_sum(oracle.traits, variant)
    return ReferenceCall(
        variant=variant,
        inputs=tuple(inputs),
        tree=tree,
        seed=seed,
        own=oracle.told(own),
        truth=exact,
        answer=truth.answer,
        errors=errors,
        limits=tuple(limits_for(required, error, longest=longest) for error in errors),
        longest=longest,
        source=truth.source,
        required=required,
        nearby=lambda: ((weight, values(near)) for weight, near in oracle.nearby(inputs, tree, seed, required)),
    )


@dataclass(slots=True)
class SampleDrawer:
    """Draws new inputs of a problem with every call.

    The same `seed` gives the same sequence.
    """

    reference: ReferenceModule
    device: Device
    seed: int = 20_240_607
    _count: int = 0

    def inputs(self, variant: str, part: int = 0) -> tuple[Leaves, TreeSpec]:
        self._count += 1
        seed = (self.seed + 7919 * self._count) & ~1 | part & 1
        drawn = draw(self.reference, seed=seed, variant=variant, device=self.device.torch_device)
        leaves, tree = flatten(list(drawn.values))
        return tuple(leaves), tree

    def samples(
        self, oracle: Reference, problem: Problem, required: PrecisionClass, first: ReferenceCall
    ) -> Iterator[ReferenceCall]:
        """Yield one sample at a time, every variant in turn; `first` comes first.

        Keeps no reference to a sample, because few samples of the full size fit in memory together.
        """
        yield first
        del first
        for number, (variant, part) in enumerate(checked_variants(problem, OWN_DRAWS)[1:], 1):
            yield self._sample(variant, part, 1000 + number, oracle, required)

    def _sample(self, variant: str, part: int, seed: int, oracle: Reference, required: PrecisionClass) -> ReferenceCall:
        leaves, tree = self.inputs(variant, part)
        return make_sample(variant, leaves, tree, seed, oracle, required)

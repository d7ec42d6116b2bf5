"""The calls on which answers are tried: inputs of every variant with their truth, and the rule that judges an answer.

Control layer; trusted side. The rule is that of the verification (`numerics`): an answer must lie inside the problem's
precision class on every output, and a wrong solution is rejected where one call of any variant rejects it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from harness.devices import Device
from harness.inputs import draw
from harness.model import PrecisionClass, Problem
from harness.numerics import Limits, TensorComparison, compare, limits_for
from harness.oracle import Answer, Oracle
from harness.reference import ReferenceModule
from harness.trees import TreeSpec, flatten

OWN_DRAWS = 3
"""Draws of the problem's own inputs, as `--seeds` has by default."""

STRESS_DRAWS = 2
"""Draws of every other variant, as in an evaluation."""

_NONE = Limits(rms=math.inf, max=math.inf)

Leaves = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One call: its inputs (slot order of `tree`), what the reference gives in float32, and the truth.

    `errors` are the float32 reference's own, `limits` those that an answer must keep.
    """

    variant: str
    inputs: Leaves
    tree: TreeSpec
    seed: int
    own: Leaves
    truth: Leaves
    errors: tuple[TensorComparison, ...]
    limits: tuple[Limits, ...]
    source: str

    def rejects(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Whether these outputs are judged wrong here. Of another shape or dtype: always."""
        if any(a.shape != r.shape or a.dtype != r.dtype for a, r in zip(leaves, self.own, strict=True)):
            return True
        # `judge` fails an answer exactly where an output is not within its limits. Compared to no limit at all: what is
        # looked for beyond them, places and patterns, costs more than the comparison, and nobody reads it here.
        return not all(
            compare(a, t, reference=r, limits=_NONE).within(limit)
            for a, t, r, limit in zip(leaves, self.truth, self.own, self.limits, strict=True)
        )

    def equals(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Whether these outputs are the reference's own, bit for bit (NaN counts as equal to NaN)."""
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
    oracle: Oracle,
    required: PrecisionClass,
) -> Sample:
    """Compute truth and own answer on these inputs. Raises what the reference raises."""
    truth = oracle.truth(inputs, tree, seed)
    own: Answer = oracle.answer(inputs, tree, seed)
    errors = tuple(compare(r, t) for r, t in zip(own.leaves, truth.answer.leaves, strict=True))
    return Sample(
        variant=variant,
        inputs=tuple(inputs),
        tree=tree,
        seed=seed,
        own=own.leaves,
        truth=truth.answer.leaves,
        errors=errors,
        limits=tuple(limits_for(required, error) for error in errors),
        source=truth.source,
    )


def variants_of(problem: Problem) -> list[tuple[str, int]]:
    """Variant and part of every call that a verification makes."""
    stress = [(variant, part) for variant in problem.rules.variants for part in range(STRESS_DRAWS)]
    return [("own", part) for part in range(OWN_DRAWS)] + stress


@dataclass(slots=True)
class Drawer:
    """Draws inputs of a problem, new ones with every call; the same numbers for the same `seed`."""

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

    def samples(self, oracle: Oracle, problem: Problem, required: PrecisionClass) -> Iterator[Sample]:
        """One sample at a time, every variant in turn: at full size few of them fit the memory together."""
        for number, (variant, part) in enumerate(variants_of(problem)):
            leaves, tree = self.inputs(variant, part)
            yield make_sample(variant, leaves, tree, 1000 + number, oracle, required)

"""What calls of the reference gave: traits, answers, and the truth.

Trusted side. Plain data; `truth.py` makes the calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from harness.protocol.gradients import readable
from harness.protocol.tensor_tree import TreeSpec
from harness.referee.problem.choices import IndexChoice
from harness.referee.problem.codes import CodeChoice, OutputKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What one trial call of the reference showed.

    Attributes:
        draws_random: Whether it advanced a random generator.
        mutates_inputs: Whether it wrote to its inputs.
        updates_state: Names of parameters and buffers that it changed.
        tree: Structure of its output.
        shapes: Shapes of the output tensors.
        dtypes: Types of the output tensors.
        strides: In elements, by output number: outputs that are not contiguous, or lazily negated or conjugated.
        reshaped: By input number: shapes after the call of inputs whose shape it changed.
        counters: Values after the call of the batch counters among `updates_state` that nothing reads: those of batch
            norms with a fixed momentum.
        destinations: Numbers of the inputs that hold the results, if it returns nothing.
        longest_sum: Most terms that one of its operators adds to one value.
        choosing: Numbers of the outputs that are indices straight from a choosing operator, or codes from rounding.
        held_bytes: Bytes of its outputs and of what autograd keeps from the forward for the backward, without inputs
            and state; None if the problem asks for no backward.
    """

    draws_random: bool
    mutates_inputs: bool
    updates_state: tuple[str, ...]
    tree: TreeSpec
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    strides: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    reshaped: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    destinations: tuple[int, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    longest_sum: int = 1
    choosing: tuple[int, ...] = ()
    held_bytes: int | None = None

    @property
    def output_names(self) -> list[str]:
        """Names of the output tensors for readers, gradients among them."""
        return list(map(readable, self.tree.paths("output")))

    def result_names(self) -> list[str]:
        """Return the names of `Answer.results`."""
        return [*self.output_names, *(f"state {name}" for name in self.updates_state)]

    @property
    def contiguous(self) -> tuple[int, ...]:
        """Numbers of the contiguous outputs."""
        return tuple(number for number in range(len(self.shapes)) if number not in self.strides)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Results of one call.

    Attributes:
        leaves: Output tensors in the order of `tree`.
        tree: Structure of the output.
        state: Updated parameters and buffers by name.
        inputs: The inputs after the call, if the reference changes inputs, else empty.
        choices: By output number: indices straight from a choosing operator, with the values they point to, and codes
            straight from rounding, with the values before.
    """

    leaves: tuple[torch.Tensor, ...]
    tree: TreeSpec
    state: Mapping[str, torch.Tensor]
    inputs: tuple[torch.Tensor, ...]
    choices: Mapping[int, IndexChoice | CodeChoice] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[int, OutputKind]:
        """Kinds of the outputs among `choices`, by number."""
        return {number: choice.kind for number, choice in self.choices.items()}

    def pointed(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Replace indices by the truth's values that they point to, codes by values.

        Args:
            outputs: Outputs in the order of `leaves`, and any others behind them.
        """
        return [self.choices[n].pointed(leaf) if n in self.choices else leaf for n, leaf in enumerate(outputs)]

    def valued(self, truth: Answer) -> Answer:
        """Return this trusted answer with chosen values in place of indices.

        Only the indices of `truth`'s choices are replaced. The values are those that this answer chose in its own
        arithmetic, so they show that arithmetic's error.
        """
        if not truth.choices:
            return self
        values = truth.pointed(self.leaves)
        for number in truth.choices.keys() & self.choices.keys():
            values[number] = self.choices[number].chosen
        return replace(self, leaves=tuple(values))

    def results(self) -> list[torch.Tensor]:
        """Return output tensors and updated state, in the order in which they are judged."""
        return [*self.leaves, *self.state.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The answer to compare with, and its source.

    `source` is `float64 cuda`, `float64 cpu` or `float32 reference`. The first may be followed by `, convolutions as
    matrix products` and by `, by rows`.
    """

    answer: Answer
    source: str

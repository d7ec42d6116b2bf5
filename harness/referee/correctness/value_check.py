"""Compare calls' answers with the truth: many at once, or one in full detail.

Trusted side; one `ValueCheck` for each solution. On a GPU each call's truth, and the kernels that measure the answer's
error, are enqueued without waiting. Each truth reuses the memory of the one before, in the order of the stream, so many
calls need no more memory than one. The results of all calls are read in one copy. An answer that they do not prove
correct is judged alone, with its truth computed again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from harness.core.choices import PrecisionClass
from harness.core.status import Failure, Status
from harness.protocol.messages import CallClaim
from harness.protocol.tensor_tree import TreeSpec
from harness.referee.correctness.compare import DeferredValues
from harness.referee.correctness.compare_float import ZERO_SCALE
from harness.referee.correctness.precision import MOST_RMS, Pointing, class_limits
from harness.referee.correctness.rounding_evidence import rounded_to
from harness.referee.correctness.tolerance import (
    LIMITS,
    REFERENCE_FACTOR,
    UNLIMITED,
    ErrorLimits,
    Pending,
    Sensitivity,
    TensorComparison,
    ToleranceVerdict,
    compare,
    enqueue,
    few_wrong,
    judge,
    kernelbench_far,
    kernelbench_rule,
    limits_for,
    longest_sum,
    of_kinds,
    sensitivity_of,
)
from harness.referee.problem.answer import Answer, Truth
from harness.referee.problem.choices import IndexChoice
from harness.referee.problem.chunks import count_unwritten
from harness.referee.problem.codes import CodeChoice, OutputKind
from harness.referee.problem.stress_variants import OWN
from harness.referee.problem.workspace import POISON, Workspace

DRAWS_RANDOM = "the reference draws random numbers: a solution must draw the same ones in the same order"

FEW_WRONG = 0.25
"""Largest share of entries, and of those that rounded inputs move, in which a coarser class may not err alone."""

UNEVEN = 8.0
"""Largest error over RMS error beyond which an answer of a coarser class is judged in full detail.

Errors of rounding are even: the largest of 1e8 normal ones lies at 5.7 times their RMS.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallVerdict:
    """The verdict on one call. `failure` is None only if everything was proven."""

    variant: str
    failure: Failure | None
    judgement: ToleranceVerdict | None = None
    truth: str | None = None
    reference: tuple[TensorComparison, ...] = ()
    kernelbench: bool | None = None
    """Result of KernelBench's rule, for the problem's own inputs only; None if it was not applied."""
    outputs_right: bool = False
    """Whether everything but the state is right, although the call failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredCall:
    """One call whose answer is to be judged.

    `changed` are the numbers of the inputs that differ from the draw. `wanted` requests the reference's own answer in
    any case. Stress inputs always need it: there the error of float32 differs from draw to draw.
    """

    index: int
    claim: CallClaim
    changed: Sequence[int]
    wanted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCheck:
    """A call whose comparisons are in progress.

    If the reference's answer was requested, `own` are its comparisons with the truth, and `far` the indices of the
    readings for KernelBench's rule (None: another shape or dtype).
    """

    call: AnsweredCall
    source: str
    tree: TreeSpec
    comparisons: tuple[Pending, ...]
    kinds: Mapping[int, OutputKind]
    own: tuple[Pending, ...] | None = None
    far: tuple[int | None, ...] = ()


@dataclass(slots=True)
class ValueCheck:
    """Judge the values of one solution's calls."""

    workspace: Workspace
    required: PrecisionClass
    _references: dict[str, tuple[TensorComparison, ...]] = field(default_factory=dict)
    _unclear: set[str] = field(default_factory=set)
    """Variants whose correct answers need the full comparison: non-finite values, ties from float32 rounding."""
    _rounds: bool | None = None
    """Whether the last wrong answer looked rounded; after one that did not, no further one is examined."""
    _mistaken: bool = False
    """Whether an answer was wrong: further ones probably are, and then the full comparison is faster."""

    def begin(self, call: AnsweredCall, readings: DeferredValues, underway: set[str]) -> PendingCheck | CallVerdict:
        """Start judging a call; judge it at once if there are no kernels for it.

        Args:
            call: The call.
            readings: Receives the values.
            underway: Variants whose reference errors will be known from calls started before this one. May grow.

        Returns:
            The check in progress, or the verdict.
        """
        truth = self.workspace.truth(call.index, call.changed)
        variant = self.workspace.variant(call.index)
        longer = self._mistaken or variant in self._unclear
        begun = None if longer else self._enqueue(call, truth, readings, underway)
        return begun or self._judge(call, truth)

    def end(self, begun: PendingCheck, readings: DeferredValues) -> CallVerdict | None:
        """Return the verdict that the readings prove, or None.

        None means that they prove nothing, so that `judge` is needed.
        """
        call, variant = begun.call, self.workspace.variant(begun.call.index)
        if begun.own is None:
            references = self._references[variant]
        else:
            known = [pending.right(readings, UNLIMITED) for pending in begun.own]
            references = of_kinds([reference for reference in known if reference is not None], begun.kinds)
            if len(references) < len(known):
                return None
        limits = [self._limits(reference, variant) for reference in references]
        found = [pending.right(readings, limit) for pending, limit in zip(begun.comparisons, limits, strict=True)]
        comparisons = of_kinds([comparison for comparison in found if comparison is not None], begun.kinds)
        if len(comparisons) < len(found):
            return None
        if self.required is not PrecisionClass.FP32 and any(_is_uneven(c) for c in comparisons):
            return None
        self._references[variant] = references
        asked = begun.own is not None and variant == OWN
        close = all(n is not None and readings[n][0] == 0 for n in begun.far) if asked else None
        if _constants(call.claim, begun.tree, self._constant_limit(limits)) is not None:
            return None
        return self._finding(call, begun.source, begun.tree, comparisons, references, limits, close)

    def judge(self, call: AnsweredCall) -> CallVerdict:
        """Judge a call in full detail, with its truth computed again."""
        finding = self._judge(call, self.workspace.truth(call.index, call.changed))
        if finding.failure is None:
            self._unclear.add(finding.variant)
        return finding

    def _enqueue(
        self, call: AnsweredCall, truth: Truth, readings: DeferredValues, underway: set[str]
    ) -> PendingCheck | None:
        raw = list(self.workspace.judged(call.index).values())
        actual, expected = truth.answer.pointed(raw), self._expected(truth.answer, truth)
        if (comparisons := _enqueued(actual, expected, readings)) is None:
            return None
        variant = self.workspace.variant(call.index)
        begun = PendingCheck(
            call=call,
            source=truth.source,
            tree=truth.answer.tree,
            comparisons=comparisons,
            kinds=truth.answer.kinds,
        )
        if not call.wanted and variant == OWN and (variant in self._references or variant in underway):
            return begun
        answer = self._own(call)
        if (errors := _enqueued(self._expected(answer, truth), expected, readings)) is None:
            return None
        count = len(self.workspace.sets[call.index].outputs) if variant == OWN else 0
        own = self.workspace.expected(answer)
        far = [kernelbench_far(a, r) for a, r in zip(raw[:count], own[:count], strict=True)]
        underway.add(variant)
        return replace(begun, own=errors, far=tuple(None if f is None else readings.add(f) for f in far))

    def _own(self, call: AnsweredCall) -> Answer:
        """Compute the reference's own answer."""
        return self.workspace.answer(call.index, call.changed)

    def _expected(self, answer: Answer, truth: Truth) -> list[torch.Tensor]:
        """Return a trusted answer's tensors, chosen values in place of indices."""
        return self.workspace.expected(answer.valued(truth.answer))

    def _errors(
        self, own: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], truth: Truth
    ) -> tuple[TensorComparison, ...]:
        """Measure the reference's own errors."""
        errors = [compare(r, t, limits=UNLIMITED) for r, t in zip(own, expected, strict=True)]
        return of_kinds(errors, truth.answer.kinds)

    def _limits(self, reference: TensorComparison, variant: str, sensitivity: Sensitivity | None = None) -> ErrorLimits:
        longest = longest_sum(self.workspace.traits, variant)
        return limits_for(self.required, reference, sensitivity, longest=longest)

    def _constant_limit(self, limits: Sequence[ErrorLimits]) -> float:
        """Return the error limit for numbers outside tensors.

        It is the limit on single values of the first tensor, or of the required class if there is no tensor.
        """
        return (limits[0] if limits else LIMITS[self.required]).max

    def _judge(self, call: AnsweredCall, truth: Truth) -> CallVerdict:
        """Judge everything about one call, waiting for the device as needed."""
        raw = list(self.workspace.judged(call.index).values())
        actual, expected = truth.answer.pointed(raw), self._expected(truth.answer, truth)
        variant = self.workspace.variant(call.index)
        close: bool | None = None
        references = self._references.get(variant) if variant == OWN else None
        answer: Answer | None = None
        own: list[torch.Tensor] | None = None
        if call.wanted or references is None:
            answer = self._own(call)
            own = self._expected(answer, truth)
            if variant == OWN:
                count = len(self.workspace.sets[call.index].outputs)
                told = self.workspace.expected(answer)
                close = all(kernelbench_rule(a, r) for a, r in zip(raw[:count], told[:count], strict=True))
            references = self._errors(own, expected, truth)
            self._references[variant] = references
        limits = [self._limits(reference, variant) for reference in references]
        choices = truth.answer.choices
        comparisons = _compared(actual, expected, own, limits, truth.answer)
        if answer is None and not (
            all(c.within(limit) for c, limit in zip(comparisons, limits, strict=True))
            and _constants(call.claim, truth.answer.tree, self._constant_limit(limits)) is None
        ):
            # Integers may differ from the truth's by float32 rounding, and values in kind. float32 may also be less
            # exact on these inputs than on those for which its error was measured.
            answer = self._own(call)
            own = self._expected(answer, truth)
            references = self._errors(own, expected, truth)
            limits = [self._limits(reference, variant) for reference in references]
            comparisons = _compared(actual, expected, own, limits, truth.answer)
        # These are several more truths, not worth their time once an answer was wrong.
        nearby = () if self._mistaken else self.workspace.nearby(call.index, call.changed, self.required)
        sensitivity = sensitivity_of(
            comparisons,
            self.required,
            references=references,
            expected=expected,
            nearby=((weight, self._expected(near, truth)) for weight, near in nearby),
            longest=longest_sum(self.workspace.traits, variant),
        )
        if sensitivity is not None:
            limits = [self._limits(r, variant, s) for r, s in zip(references, sensitivity, strict=True)]
            comparisons = _compared(actual, expected, own, limits, truth.answer)  # other entries exceed the new limits
        return self._finding(
            call,
            truth.source,
            truth.answer.tree,
            comparisons,
            references,
            limits,
            close,
            pointing={n: _pointing(c, raw[n]) for n, c in choices.items() if not comparisons[n].within(limits[n])},
            sensitivity=sensitivity,
            own=None if answer is None else answer.tree,
            rounding=self._rounding(call, actual, expected, comparisons, limits, choices),
            sparse=self._sparse(call, actual, truth, comparisons, references, limits, variant),
        )

    def _rounding(
        self,
        call: AnsweredCall,
        actual: Sequence[torch.Tensor],
        expected: Sequence[torch.Tensor],
        comparisons: Sequence[TensorComparison],
        limits: Sequence[ErrorLimits],
        choices: Mapping[int, IndexChoice | CodeChoice],
    ) -> list[PrecisionClass | None]:
        """Return the class to which each wrong output's error looks rounded.

        Values that indices point to are those of the truth, however they were found: they tell nothing of rounding.
        """

        def nearby(precision: PrecisionClass) -> Iterator[list[torch.Tensor]]:
            rounded = self.workspace.nearby(call.index, call.changed, precision)
            for _, answer in itertools.islice(rounded, 2):  # to nearest and toward zero
                yield self.workspace.expected(answer)

        found: list[PrecisionClass | None] = []
        for number, (a, t, c, limit) in enumerate(zip(actual, expected, comparisons, limits, strict=True)):
            small = c.rms_error is not None and c.rms_error <= MOST_RMS and not c.non_finite_mismatches
            if c.within(limit) or not small or self._rounds is False or number in choices:
                found.append(None)
            else:
                found.append(rounded_to(number, a, t, self.required, nearby))
                self._rounds = found[-1] is not None
        return found

    def _sparse(
        self,
        call: AnsweredCall,
        actual: Sequence[torch.Tensor],
        truth: Truth,
        comparisons: Sequence[TensorComparison],
        references: Sequence[TensorComparison],
        limits: Sequence[ErrorLimits],
        variant: str,
    ) -> TensorComparison | None:
        """Return an output with few wrong entries, all others exact to float32.

        Arithmetic of a coarser class moves most entries that some rounded input or weight moves; a mistake moves a few.
        Each is rounded alone: a product may be of a class, and the bias that is added to it in float32. Of indices, it
        moves those with a near-tie only, which is no sign of a mistake. Nor is it if the float32 reference is not exact
        itself: TF32 of a convolution leaves sums of few digits exact, and rounded inputs move them.
        """
        if self.required is PrecisionClass.FP32:
            return None
        exact = class_limits(PrecisionClass.FP32, longest=longest_sum(self.workspace.traits, variant))
        expected = self._expected(truth.answer, truth)
        given = zip(actual, expected, comparisons, references, limits, strict=True)
        for number, (a, t, c, reference, limit) in enumerate(given):
            if c.exact or not c.within(limit) or c.within(exact) or c.rms_error is None:
                continue
            if number in truth.answer.choices or not reference.within(exact):
                continue
            strict = compare(a, t, limits=exact)
            if not 0 < strict.wrong <= FEW_WRONG * c.count or not (strict.rest_rms_error or 0.0) <= exact.rms:
                continue
            each = self.workspace.nearby_each(call.index, call.changed, self.required)
            moved = (compare(self._expected(near, truth)[number], t, limits=exact).wrong for near in each)
            first = next((count for count in moved if count), None)
            if first is not None and all(not n or n > strict.wrong / FEW_WRONG for n in (first, *moved)):
                return strict
        return None

    def _finding(
        self,
        call: AnsweredCall,
        source: str,
        tree: TreeSpec,
        comparisons: Sequence[TensorComparison],
        references: tuple[TensorComparison, ...],
        limits: Sequence[ErrorLimits],
        close: bool | None,
        *,
        pointing: Mapping[int, Pointing] | None = None,
        sensitivity: tuple[Sensitivity, ...] | None = None,
        own: TreeSpec | None = None,
        rounding: Sequence[PrecisionClass | None] | None = None,
        sparse: TensorComparison | None = None,
    ) -> CallVerdict:
        """Build the verdict from the comparisons.

        `source` and `tree` are the truth's, `own` is the tree of the reference's own answer, `close` the result of
        KernelBench's rule, `rounding` and `sparse` are what `_rounding` and `_sparse` found.
        """
        names = list(self.workspace.judged(call.index))
        judgement = judge(
            comparisons,
            self.required,
            references=references,
            sensitivity=sensitivity,
            names=names,
            longest=longest_sum(self.workspace.traits, self.workspace.variant(call.index)),
            rounding=rounding,
            pointing=pointing,
        )
        if judgement.failure is None and sparse is not None:
            judgement = replace(judgement, failure=few_wrong(sparse, judgement.evidence))
        failure = judgement.failure or _constants(call.claim, tree, self._constant_limit(limits), own)
        outputs_right = False
        if failure is not None:
            inside = [c.within(limit) for c, limit in zip(comparisons, limits, strict=True)]
            count = len(self.workspace.sets[call.index].outputs)
            beside_state = inside[:count] + inside[count + len(self.workspace.compared_state) :]
            constants = _constants(call.claim, tree, self._constant_limit(limits), own)
            outputs_right = all(beside_state) and constants is None
            if all(inside[:count]) and not all(inside[count:]):
                failure = Failure(status=Status.wrong_state, reason=failure.reason, evidence=failure.evidence)
            if self.workspace.traits.draws_random:
                reason = f"{failure.reason}; {DRAWS_RANDOM}"
                failure = Failure(status=failure.status, reason=reason, evidence=failure.evidence)
        self._mistaken = self._mistaken or failure is not None
        return CallVerdict(
            variant=self.workspace.variant(call.index),
            failure=failure,
            judgement=judgement,
            truth=source,
            reference=references,
            kernelbench=close,
            outputs_right=outputs_right,
        )


def _is_uneven(c: TensorComparison) -> bool:
    return c.rms_error is not None and c.max_error is not None and c.max_error > UNEVEN * c.rms_error


def _enqueued(
    actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], readings: DeferredValues
) -> tuple[Pending, ...] | None:
    """Start comparing these tensors; return None if one comparison cannot start."""
    begun = []
    for a, t in zip(actual, expected, strict=True):
        if (pending := enqueue(a, t, readings)) is None:
            return None
        begun.append(pending)
    return tuple(begun)


def _compared(
    actual: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    own: Sequence[torch.Tensor] | None,
    limits: Sequence[ErrorLimits],
    answer: Answer,
) -> list[TensorComparison]:
    """Compare each tensor with the truth's `answer`, and with `own` if given.

    Values that indices point to are the truth's: they differ from it in kind only if an index is wrong.
    """
    other = [None if own is None or number in answer.choices else own[number] for number in range(len(actual))]
    found = [
        compare(a, t, reference=r, limits=limit, poison_byte=POISON)
        for a, t, r, limit in zip(actual, expected, other, limits, strict=True)
    ]
    return list(of_kinds(found, answer.kinds))


def _pointing(choice: IndexChoice | CodeChoice, index: torch.Tensor) -> Pointing:
    """Return which rules a wrong index output breaks."""
    return Pointing(faults=choice.faults(index), unwritten=count_unwritten(index, POISON, index.numel()))


def _constants(claim: CallClaim, truth: TreeSpec, limit: float, own: TreeSpec | None = None) -> Failure | None:
    """Compare constants in the output with the truth's.

    A constant is, for example, a loss or a count as a Python number. If the reference's `own` answer is given, floats
    may differ by four times its error, as tensors may, and other constants may equal it.
    """
    tree = TreeSpec.from_json(claim.tree)
    exact_own = truth.exact() if own is None else own.exact()
    for (path, said), (_, right), (_, other) in zip(tree.exact("output"), truth.exact(), exact_own, strict=True):
        if said not in (right, other):
            return Failure(status=Status.wrong_value, reason=f"{path}: {said!r:.60} is wrong for these inputs")
    mine = tree.floats("output")
    expected = truth.floats("output")
    references = expected if own is None else own.floats("output")
    for (path, got), (_, exact), (_, reference) in zip(mine, expected, references, strict=True):
        if any(got == right or (math.isnan(got) and math.isnan(right)) for right in (exact, reference)):
            continue
        if math.isfinite(exact) and abs(got - exact) <= limit * max(abs(exact), ZERO_SCALE):
            continue
        if not abs(got - exact) <= REFERENCE_FACTOR * abs(reference - exact) < math.inf:
            return Failure(status=Status.wrong_value, reason=f"{path}: got {got:.6g}, expected about {exact:.2g}")
    return None

"""Judge errors: which precision class an answer reaches, and why.

Trusted side; pure functions. The rest of the harness uses this module; it re-exports the public names of `precision.py`
and `compare.py`. See guides/design/tolerances.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.core.choices import PrecisionClass
from harness.core.status import Failure, Status, one_line
from harness.referee.correctness import compare_float_cuda
from harness.referee.correctness.compare import Pending, compare, enqueue, is_real
from harness.referee.correctness.precision import (
    LIMITS,
    MOST_RMS,
    NO_LONG_SUM,
    UNIT,
    UNLIMITED,
    Element,
    ErrorLimits,
    LongSum,
    Pointing,
    Sensitivity,
    TensorComparison,
    class_limits,
    rounding_factor,
)
from harness.referee.problem.answer import Traits
from harness.referee.problem.chunks import TEMPORARY_BYTES, slices
from harness.referee.problem.codes import OutputKind
from harness.referee.problem.stress_variants import LARGE_VALUES, STRUCTURED

__all__ = [
    "LIMITS",
    "NO_LONG_SUM",
    "REFERENCE_FACTOR",
    "UNLIMITED",
    "Element",
    "ErrorLimits",
    "LongSum",
    "Pending",
    "Pointing",
    "Sensitivity",
    "TensorComparison",
    "ToleranceVerdict",
    "compare",
    "enqueue",
    "few_wrong",
    "judge",
    "kernelbench_far",
    "kernelbench_rule",
    "limits_for",
    "longest_sum",
    "of_kinds",
    "reached_class",
    "roundable",
    "sensitivities",
    "sensitivity_of",
]

REFERENCE_FACTOR = 4.0
"""A class's limit is at least this many times the float32 reference's own error."""

FEW = 1e-2
"""Share of wrong entries up to which an error counts as wrong places, not as low precision."""

_ORDER = tuple(LIMITS)


def limits_for(
    required: PrecisionClass,
    reference: TensorComparison | None = None,
    sensitivity: Sensitivity | None = None,
    *,
    longest: LongSum = NO_LONG_SUM,
) -> ErrorLimits:
    """Return the limits of a precision class for one tensor.

    The limits of the class (`class_limits`) are raised to four times the float32 reference's own error. They are also
    raised to a multiple (`rounding_factor`) of the error of rounding inputs and weights to the class, which no answer
    of the class can avoid (RMS limits up to `MOST_RMS`). Indices whose values float32 computes exactly, such as inputs,
    must in fp32 point to the same values. The note says which of these applied.

    Args:
        required: The precision class.
        reference: Comparison of the float32 reference with the truth. None: a truth about zero, and no such error.
        sensitivity: Error from rounding inputs and weights to a class. It says nothing about more exact classes.
        longest: The longest sum that the reference forms.

    Returns:
        Limits on the scaled errors, with a note if other limits than the class's apply.
    """
    if required is PrecisionClass.FP32 and reference is not None and reference.index_of and not reference.max_error:
        return ErrorLimits(rms=UNIT, max=UNIT, note="the reference chooses among values without rounding error")
    spread = 1.0
    if reference is not None and reference.truth_rms and reference.truth_spread is not None:
        spread = reference.truth_spread / reference.truth_rms
    base = class_limits(required, spread=spread, longest=longest)
    rms, largest, notes = base.rms, base.max, []
    if reference is not None and reference.rms_error is not None and reference.max_error is not None:
        if REFERENCE_FACTOR * reference.rms_error > rms:
            rms = REFERENCE_FACTOR * reference.rms_error
            notes.append(f"RMS limit raised to {_about(rms)}: four times the float32 reference's own error")
        if REFERENCE_FACTOR * reference.max_error > largest:
            largest = REFERENCE_FACTOR * reference.max_error
            notes.append(
                f"limit on single values raised to {_about(largest)}: four times the float32 reference's largest error"
            )
    if sensitivity is not None and _ORDER.index(sensitivity.precision) <= _ORDER.index(required):
        factor = rounding_factor(required)
        times = "four" if factor == 4.0 else f"{factor:g}"
        what = f"{times} times the error from rounding inputs and weights to {sensitivity.precision.value}"
        if min(MOST_RMS, factor * sensitivity.rms) > rms:
            rms = min(MOST_RMS, factor * sensitivity.rms)
            most = ", the largest allowed" if rms == MOST_RMS else ""
            notes.append(f"RMS limit raised to {_about(rms)}{most}: {what}")
        if factor * sensitivity.max > largest:
            largest = factor * sensitivity.max
            notes.append(f"limit on single values raised to {_about(largest)}: {what}")
    return ErrorLimits(rms=rms, max=largest, note="; ".join(notes)) if notes else base


def of_kinds(comparisons: Sequence[TensorComparison], kinds: Mapping[int, OutputKind]) -> tuple[TensorComparison, ...]:
    """Mark comparisons of values that indices point to, and of codes.

    Args:
        comparisons: One for each output.
        kinds: By output number (`Answer.kinds`).
    """
    return tuple(
        c
        if (kind := kinds.get(n)) is None
        else replace(c, dtype=kind.dtype, index_of=kind.operator, code=kind.operator is None)
        for n, c in enumerate(comparisons)
    )


def longest_sum(traits: Traits, variant: str) -> LongSum:
    """Return the longest sum of a reference on inputs of a variant.

    Structured inputs make many terms equal, large values make most terms small beside a few.
    """
    return LongSum(terms=traits.longest_sum, alike=variant in (STRUCTURED, LARGE_VALUES))


def sensitivity_of(
    comparisons: Sequence[TensorComparison],
    required: PrecisionClass,
    *,
    references: Sequence[TensorComparison],
    expected: Sequence[torch.Tensor],
    nearby: Iterable[tuple[float, Sequence[torch.Tensor]]],
    longest: LongSum = NO_LONG_SUM,
) -> tuple[Sensitivity, ...] | None:
    """Measure the effect of rounding inputs, until the answer is within its limits.

    Args:
        comparisons: The answer's comparisons with the truth.
        required: The precision class.
        references: The float32 reference's comparisons with the truth, in the same order.
        expected: The truth's tensors.
        nearby: Truths of rounded inputs and weights, each with the weight of its errors; taken one by one.
        longest: As in `limits_for`.

    Returns:
        The sensitivity of each tensor; None for fp32, if the answer is within its limits, or if it is beyond any limit.
    """
    limits = [limits_for(required, r, longest=longest) for r in references]
    if not roundable(comparisons, limits, required):
        return None
    found = None
    for found in sensitivities(expected, nearby, required):
        limits = [limits_for(required, r, s, longest=longest) for r, s in zip(references, found, strict=True)]
        if all(c.within(limit) for c, limit in zip(comparisons, limits, strict=True)):
            break
    return found


def roundable(comparisons: Sequence[TensorComparison], limits: Sequence[ErrorLimits], required: PrecisionClass) -> bool:
    """Return whether an answer is outside its limits but could be within raised ones.

    Only for classes below fp32. Grossly wrong answers cost no further truths.
    """
    outside = [(c, limit) for c, limit in zip(comparisons, limits, strict=True) if not c.within(limit)]
    hopeless = any(
        c.exact or c.non_finite_mismatches or c.rms_error is None or c.rms_error > max(limit.rms, MOST_RMS)
        for c, limit in outside
    )
    return required is not PrecisionClass.FP32 and bool(outside) and not hopeless


def sensitivities(
    expected: Sequence[torch.Tensor], nearby: Iterable[tuple[float, Sequence[torch.Tensor]]], precision: PrecisionClass
) -> Iterator[tuple[Sensitivity, ...]]:
    """Yield the largest error from rounding to a class so far, after each of `nearby`.

    Only entries that are finite in both truths count. Exact types, and tensors whose shape then differs, contribute
    nothing.

    Args:
        expected: The truth's tensors.
        nearby: Truths of rounded inputs and weights, each with the weight of its errors.
        precision: The class to which inputs and weights were rounded.
    """
    worst = [Sensitivity(precision=precision, rms=0.0, max=0.0) for _ in expected]
    for weight, leaves in nearby:
        if len(leaves) != len(expected):
            continue
        for number, (near, truth) in enumerate(zip(leaves, expected, strict=True)):
            if near.shape != truth.shape or not is_real(near) or not is_real(truth):
                continue
            found = compare(near, truth, limits=UNLIMITED)
            if found.rms_error is not None and found.max_error is not None:
                held = worst[number]
                worst[number] = Sensitivity(
                    precision=precision,
                    rms=max(held.rms, weight * found.rms_error),
                    max=max(held.max, weight * found.max_error),
                )
        yield tuple(worst)


def reached_class(
    comparisons: Sequence[TensorComparison],
    *,
    references: Sequence[TensorComparison] | None = None,
    sensitivity: Sequence[Sensitivity] | None = None,
    longest: LongSum = NO_LONG_SUM,
) -> PrecisionClass | None:
    """Return the most exact class whose limits every output keeps.

    Args:
        comparisons: The outputs' comparisons with the truth.
        references: The float32 reference's comparisons, in the same order.
        sensitivity: Errors from rounding inputs and weights, in the same order, if they were measured.
        longest: As in `limits_for`.

    Returns:
        The class; None if there is none.
    """
    own = references if references is not None else [None] * len(comparisons)
    near = sensitivity if sensitivity is not None else [None] * len(comparisons)
    for precision in _ORDER:
        limits = [limits_for(precision, r, s, longest=longest) for r, s in zip(own, near, strict=True)]
        if all(c.within(limit) for c, limit in zip(comparisons, limits, strict=True)):
            return precision
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceVerdict:
    """The verdict on one call's outputs.

    `failure` is None if all outputs are within the required class.
    """

    failure: Failure | None
    required: PrecisionClass
    reached: PrecisionClass | None
    evidence: Mapping[str, Any]


def judge(
    comparisons: Sequence[TensorComparison],
    required: PrecisionClass,
    *,
    references: Sequence[TensorComparison] | None = None,
    sensitivity: Sequence[Sensitivity] | None = None,
    names: Sequence[str] | None = None,
    longest: LongSum = NO_LONG_SUM,
    rounding: Sequence[PrecisionClass | None] | None = None,
    pointing: Mapping[int, Pointing] | None = None,
) -> ToleranceVerdict:
    """Judge all outputs of one call by a precision class.

    Args:
        comparisons: The outputs' comparisons with the truth.
        required: The precision class; `limits_for` gives its limits.
        references: The float32 reference's comparisons, in the same order.
        sensitivity: Errors from rounding inputs and weights, in the same order.
        names: Paths of the outputs for messages (`output[0]`), omitted if there is one output.
        longest: As in `limits_for`.
        rounding: The class to which each output's error looks rounded (`rounding_evidence.py`), in the same order. Only
            such an error is `low_precision`.
        pointing: By output number: what is wrong with indices beside the values that they point to.

    Returns:
        The verdict. Its evidence has every comparison, the limits and the reference's own errors. `non_finite` comes
        before `wrong_value` and `low_precision`, because it explains the others.
    """
    own = list(references) if references is not None else [None] * len(comparisons)
    near = list(sensitivity) if sensitivity is not None else [None] * len(comparisons)
    pointing = pointing or {}
    comparisons = [
        replace(c, unwritten=pointing[n].unwritten) if n in pointing else c for n, c in enumerate(comparisons)
    ]
    called = list(names) if names is not None else [f"output {i}" for i in range(len(comparisons))]
    limits = [limits_for(required, r, s, longest=longest) for r, s in zip(own, near, strict=True)]
    reached = reached_class(comparisons, references=references, sensitivity=sensitivity, longest=longest)
    evidence: dict[str, Any] = {
        "required": required.value,
        "reached": reached.value if reached else None,
        "outputs": [
            {
                "name": name,
                **c.to_json(),
                "limits": limit.to_json(),
                "reference_rms_error": r.rms_error if r else None,
                "reference_max_error": r.max_error if r else None,
            }
            for name, c, limit, r in zip(called, comparisons, limits, own, strict=True)
        ],
    }
    seen = list(rounding) if rounding is not None else [None] * len(comparisons)
    failures = []
    judged = zip(called, comparisons, limits, own, near, seen, strict=True)
    for n, (name, c, limit, r, s, precision) in enumerate(judged):
        if c.within(limit):
            continue
        own_class = reached_class(
            [c], references=None if r is None else [r], sensitivity=None if s is None else [s], longest=longest
        )
        if c.index_of is not None:
            status, words = Status.wrong_value, _explain_indices(c, limit, pointing.get(n, Pointing()), own_class)
        else:
            status, words = _explain(c, limit, required, own_class, precision)
        failures.append((status, f"{name}: {words}" if len(comparisons) > 1 else words))
    if not failures:
        return ToleranceVerdict(failure=None, required=required, reached=reached, evidence=evidence)
    order = (Status.non_finite, Status.wrong_value, Status.low_precision)
    status, reason = min(failures, key=lambda item: order.index(item[0]))
    failure = Failure(status=status, reason=one_line(reason), evidence=evidence)
    return ToleranceVerdict(failure=failure, required=required, reached=reached, evidence=evidence)


def _explain(
    c: TensorComparison,
    limits: ErrorLimits,
    required: PrecisionClass,
    reached: PrecisionClass | None,
    rounding: PrecisionClass | None,
) -> tuple[Status, str]:
    """Return status and one line for an output outside its limits."""
    where = f", first at {list(c.first.index)}: {_got(c.first)}" if c.first else ""
    if c.code and c.first:
        where += f" beyond half a step of {c.dtype}"
    unwritten = f"; {c.unwritten} were never written" if c.unwritten else ""
    pattern = f"; pattern: {c.pattern}" if c.pattern else ""
    if c.non_finite_mismatches:
        number = c.non_finite_mismatches
        return (
            Status.non_finite,
            f"{number} of {c.count} values {'is' if number == 1 else 'are'} NaN or infinite where the expected value "
            f"is not, or vice versa; {c.wrong} wrong in total{where}{unwritten}{pattern}",
        )
    if c.exact or c.rms_error is None or c.max_error is None:
        return Status.wrong_value, f"{c.wrong} of {c.count} values wrong{where}{unwritten}{pattern}"
    if rounding is not None:
        worst = f" at {list(c.worst.index)}" if c.worst else ""
        told = f"within the limits of {reached.value}" if reached else f"as after rounding to {rounding.value}"
        return (
            Status.low_precision,
            f"too inexact for {required.value}, {told}: typical error "
            f"{_percent(c.rms_error)} of the output's RMS (limit {_percent(limits.rms)}), worst "
            f"{_percent(c.max_error)}{worst} (limit {_percent(limits.max)})",
        )
    either = "; a mistake in the formula, or low precision on the way" if _could_be_rounding(c, reached) else ""
    return (
        Status.wrong_value,
        f"{c.wrong} of {c.count} values wrong{where}; largest error {_percent(c.max_error)} of the output's RMS, "
        f"typical {_percent(c.rms_error)} (limit {_percent(limits.rms)}){unwritten}{pattern}{either}",
    )


def _explain_indices(
    c: TensorComparison, limits: ErrorLimits, pointing: Pointing, reached: PrecisionClass | None
) -> str:
    """Return one line for an output with wrong indices."""
    wrong = f"{c.wrong} of {c.count} indices wrong"
    unwritten = f"; {c.unwritten} were never written" if c.unwritten else ""
    pattern = f"; pattern: {c.pattern}" if c.pattern else ""
    if pointing.faults:
        return f"{wrong}: {pointing.faults}{unwritten}{pattern}"
    first = c.first
    where = (
        f", first at {list(first.index)}: it points to {first.got:.6g}, {c.index_of} chose about "
        f"{_about(first.expected)}"
        if first
        else ""
    )
    error = (
        f"; largest difference {_percent(c.max_error)} of the chosen values' RMS, typical {_percent(c.rms_error)} "
        f"(limit {_percent(limits.rms)})"
        if c.rms_error is not None and c.max_error is not None
        else ""
    )
    either = "; a mistake, or low precision on the way" if _could_be_rounding(c, reached) else ""
    return f"{wrong}{where}{error}{unwritten}{pattern}{either}"


def few_wrong(c: TensorComparison, evidence: Mapping[str, Any]) -> Failure:
    """Return the failure of an output with few wrong entries, all others exact."""
    where = f", first at {list(c.first.index)}: {_got(c.first)}" if c.first else ""
    return Failure(
        status=Status.wrong_value,
        reason=one_line(
            f"{c.wrong} of {c.count} values wrong{where}, all others exact to float32: a mistake, not rounding; "
            f"largest error {_percent(c.max_error or 0.0)} of the output's RMS"
        ),
        evidence=evidence,
    )


def _could_be_rounding(c: TensorComparison, reached: PrecisionClass | None) -> bool:
    """Return whether a small error in many entries may be low precision."""
    return reached is not None and c.wrong > FEW * c.count and "constant" not in c.pattern


def _got(place: Element) -> str:
    if isinstance(place.got, int):
        about = "" if abs(place.expected) < 100 else "about "
        return f"got {place.got}, expected {about}{float(_about(place.expected)):.0f}"
    return f"got {place.got:.6g}, expected about {_about(place.expected)}"


def _about(value: float) -> str:
    """Format with two digits: enough to debug with, too few to copy."""
    return f"{value:.2g}"


def _percent(share: float) -> str:
    """Format a share as a percentage with two digits."""
    rounded = float(f"{100 * share:.2g}")
    return f"{rounded:.0f} %" if 100 <= rounded < 1e6 else f"{rounded:g} %"


def kernelbench_rule(actual: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype | None = None) -> bool:
    """Return whether KernelBench would accept this output.

    The rule is `allclose` against the float32 reference, with the tolerance of `get_tolerance_for_precision` in
    KernelBench's `eval.py` (v0.2): 1e-4, absolute and relative, for float32, and 1e-2 for float16 and bfloat16. Another
    shape or dtype is wrong. For comparison only: no verdict rests on it.

    Args:
        actual: The output.
        reference: The float32 reference's output.
        dtype: Precision of the run. Default: the reference's dtype.
    """
    far = kernelbench_far(actual, reference, dtype)
    return far is not None and int(far) == 0


def kernelbench_far(
    actual: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor | None:
    """Count entries that `kernelbench_rule` rejects, without waiting for the device.

    Args:
        actual: The output.
        reference: The float32 reference's output.
        dtype: Precision of the run. Default: the reference's dtype.

    Returns:
        A 0-d tensor on the device of `actual`, which is 0 if and only if all entries are close; None for another shape
        or dtype.
    """
    if actual.shape != reference.shape or actual.dtype != reference.dtype:
        return None
    tolerance = 1e-2 if (dtype or reference.dtype) in (torch.float16, torch.bfloat16) else 1e-4
    if (far := compare_float_cuda.far_apart(actual, reference, tolerance)) is not None:
        return far
    far = torch.zeros((), dtype=torch.int64, device=actual.device)
    for _, (a, r) in slices(max(1, TEMPORARY_BYTES // 32), actual, reference) if actual.numel() else ():
        assert a is not None
        assert r is not None
        r = r.to(a.device)
        if not is_real(a):
            a, r = a.to(torch.int64), r.to(torch.int64)
        elif a.element_size() == 1:
            a, r = a.float(), r.float()
        far += ~torch.isclose(a, r, rtol=tolerance, atol=tolerance).all()
    return far

"""From errors to a verdict: which precision class an answer reaches, and what is said of one that falls short.

Imports `model`, `slicing`, `comparison_kernel`, and `precision` and `comparison`, whose public names it passes on:
this is the module that the rest of the harness uses. Pure; trusted side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.core.choices import PrecisionClass
from harness.core.status import Failure, Status, one_line
from harness.referee.correctness import compare_float_cuda
from harness.referee.correctness.compare import Pending, compare, enqueue, is_real
from harness.referee.correctness.precision import (
    CONCENTRATED,
    CONCENTRATED_RMS,
    LIMITS,
    MOST_RMS,
    UNLIMITED,
    Element,
    ErrorLimits,
    Sensitivity,
    TensorComparison,
)
from harness.referee.problem.chunks import TEMPORARY_BYTES, slices

__all__ = [
    "LIMITS",
    "REFERENCE_FACTOR",
    "UNLIMITED",
    "Element",
    "ErrorLimits",
    "Pending",
    "Sensitivity",
    "TensorComparison",
    "ToleranceVerdict",
    "compare",
    "enqueue",
    "judge",
    "kernelbench_far",
    "kernelbench_rule",
    "limits_for",
    "reached_class",
    "roundable",
    "sensitivities",
    "sensitivity_of",
]

REFERENCE_FACTOR = 4.0
"""A class's limit is at least this many times the float32 reference's own error, and what rounding to it does."""

FEW = 1e-2
"""Share of wrong entries up to which an error is that of places, not of precision."""

GROSS = 0.1
"""Scaled error beyond which few wrong entries are mistakes; below, low precision on few large values gives it too."""

_ORDER = tuple(LIMITS)


def limits_for(
    required: PrecisionClass, reference: TensorComparison | None = None, sensitivity: Sensitivity | None = None
) -> ErrorLimits:
    """The limits of a class for one tensor, given how far the float32 reference itself is from the truth, and how far
    the truth is from that of inputs and weights rounded to the class.

    Where the reference's error exceeds a quarter of a limit, the limit is four times that error; so it is, up to
    `MOST_RMS`, with the error that this rounding makes, which no answer of the class can avoid (a `sensitivity` found
    for a class says nothing of more exact ones). A concentrated truth loosens fp32's rms limit (see `LIMITS`). The note
    says which. Without `reference` and `sensitivity`: the table's.
    """
    base = LIMITS[required]
    rms, largest, notes = base.rms, base.max, []
    if reference is not None and reference.rms_error is not None and reference.max_error is not None:
        if reference.truth_rms and reference.truth_spread is not None and required is PrecisionClass.FP32:
            spread = reference.truth_spread / reference.truth_rms
            loosened = min(CONCENTRATED_RMS, spread / 2)
            if spread < CONCENTRATED and loosened > rms:
                rms = loosened
                notes.append(
                    f"rms limit {_about(rms)}: the expected values spread by only {_about(spread)} of their size"
                )
        if REFERENCE_FACTOR * reference.rms_error > rms:
            rms = REFERENCE_FACTOR * reference.rms_error
            notes.append(f"rms limit raised to {_about(rms)}: four times the float32 reference's own error")
        if REFERENCE_FACTOR * reference.max_error > largest:
            largest = REFERENCE_FACTOR * reference.max_error
            notes.append(f"limit on single values raised to {_about(largest)}: four times the reference's own worst")
    if sensitivity is not None and _ORDER.index(sensitivity.precision) <= _ORDER.index(required):
        what = f"four times what inputs and weights rounded to {sensitivity.precision.value} do to the expected values"
        if min(MOST_RMS, REFERENCE_FACTOR * sensitivity.rms) > rms:
            rms = min(MOST_RMS, REFERENCE_FACTOR * sensitivity.rms)
            most = ", the most there is" if rms == MOST_RMS else ""
            notes.append(f"rms limit raised to {_about(rms)}{most}: {what}")
        if REFERENCE_FACTOR * sensitivity.max > largest:
            largest = REFERENCE_FACTOR * sensitivity.max
            notes.append(f"limit on single values raised to {_about(largest)}: {what}")
    return ErrorLimits(rms=rms, max=largest, note="; ".join(notes)) if notes else base


def sensitivity_of(
    comparisons: Sequence[TensorComparison],
    required: PrecisionClass,
    *,
    references: Sequence[TensorComparison],
    expected: Sequence[torch.Tensor],
    nearby: Iterable[tuple[float, Sequence[torch.Tensor]]],
) -> tuple[Sensitivity, ...] | None:
    """What to hold an answer to a class below fp32 with, `nearby` being asked for (as by `sensitivities`) until the
    answer is inside its limits. None where it is without, or outside of what any limit allows.
    """
    limits = [limits_for(required, r) for r in references]
    if not roundable(comparisons, limits, required):
        return None
    found = None
    for found in sensitivities(expected, nearby, required):
        limits = [limits_for(required, r, s) for r, s in zip(references, found, strict=True)]
        if all(c.within(limit) for c, limit in zip(comparisons, limits, strict=True)):
            break
    return found


def roundable(comparisons: Sequence[TensorComparison], limits: Sequence[ErrorLimits], required: PrecisionClass) -> bool:
    """Whether an answer of a class below fp32 is outside its limits, but not of what any limit allows: what is wrong
    altogether costs no further truths.
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
    """What rounding to a class does to each tensor of a truth: the worst so far, after each of `nearby`.

    These are truths of rounded inputs and weights, with what their errors count for. Only entries finite in both tell
    anything; exact types, and tensors that are of another shape then, tell nothing.
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
) -> PrecisionClass | None:
    """The most exact class that every output lies in; None where there is none.

    `references` are the float32 reference's own comparisons with the truth, in the same order, and so is the
    `sensitivity` where that was asked for.
    """
    own = references if references is not None else [None] * len(comparisons)
    near = sensitivity if sensitivity is not None else [None] * len(comparisons)
    for precision in _ORDER:
        if all(c.within(limits_for(precision, r, s)) for c, r, s in zip(comparisons, own, near, strict=True)):
            return precision
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceVerdict:
    """The verdict on one call's outputs. `failure` is None where all lie inside the required class."""

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
) -> ToleranceVerdict:
    """Judge all outputs of one call against a precision class, whose limits are those of `limits_for`.

    `names` are the outputs' paths for messages (`output[0]`); they are left out where there is one output.
    The evidence holds every comparison, the limits in force and the reference's own errors. Statuses:
    `non_finite` before `wrong_value` before `low_precision`, since the first explains the others.
    """
    own = list(references) if references is not None else [None] * len(comparisons)
    near = list(sensitivity) if sensitivity is not None else [None] * len(comparisons)
    called = list(names) if names is not None else [f"output {i}" for i in range(len(comparisons))]
    limits = [limits_for(required, r, s) for r, s in zip(own, near, strict=True)]
    reached = reached_class(comparisons, references=references, sensitivity=sensitivity)
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
    failures = []
    for name, c, limit, r, s in zip(called, comparisons, limits, own, near, strict=True):
        if c.within(limit):
            continue
        own_class = reached_class([c], references=None if r is None else [r], sensitivity=None if s is None else [s])
        status, words = _explain(c, limit, required, own_class)
        failures.append((status, f"{name}: {words}" if len(comparisons) > 1 else words))
    if not failures:
        return ToleranceVerdict(failure=None, required=required, reached=reached, evidence=evidence)
    order = (Status.non_finite, Status.wrong_value, Status.low_precision)
    status, reason = min(failures, key=lambda item: order.index(item[0]))
    failure = Failure(status=status, reason=one_line(reason), evidence=evidence)
    return ToleranceVerdict(failure=failure, required=required, reached=reached, evidence=evidence)


def _explain(
    c: TensorComparison, limits: ErrorLimits, required: PrecisionClass, reached: PrecisionClass | None
) -> tuple[Status, str]:
    """Status and one line for an output outside its limits."""
    where = f", first at {list(c.first.index)}: {_got(c.first)}" if c.first else ""
    unwritten = f"; {c.unwritten} were never written" if c.unwritten else ""
    pattern = f"; pattern: {c.pattern}" if c.pattern else ""
    if c.non_finite_mismatches:
        number = c.non_finite_mismatches
        return (
            Status.non_finite,
            f"{number} of {c.count} values {'is' if number == 1 else 'are'} NaN or infinite where the expected value "
            f"is not, or the other way round; {c.wrong} wrong in all{where}{unwritten}{pattern}",
        )
    if c.exact or c.rms_error is None or c.max_error is None:
        return Status.wrong_value, f"{c.wrong} of {c.count} values wrong{where}{unwritten}{pattern}"
    if reached is not None and not _is_wrong_in_places(c, reached):
        worst = f" at {list(c.worst.index)}" if c.worst else ""
        return (
            Status.low_precision,
            f"right only at {reached.value} precision, {required.value} is asked for: the error is "
            f"{_about(c.rms_error)} of the output's spread (limit {_about(limits.rms)}), at worst "
            f"{_about(c.max_error)}{worst} (limit {_about(limits.max)}){pattern if 'constant' in c.pattern else ''}",
        )
    return (
        Status.wrong_value,
        f"{c.wrong} of {c.count} values wrong{where}; off by up to {_about(c.max_error)} of the output's spread"
        f"{unwritten}{pattern}",
    )


def _is_wrong_in_places(c: TensorComparison, reached: PrecisionClass) -> bool:
    """A few gross errors in an otherwise more exact answer: mistakes, whatever class their sum looks like."""
    if c.max_error is None or c.rest_rms_error is None or not 0 < c.wrong <= FEW * c.count:
        return False
    rest = next((p for p in _ORDER if c.rest_rms_error <= LIMITS[p].rms), None)
    return c.max_error > GROSS and rest is not None and _ORDER.index(rest) < _ORDER.index(reached)


def _got(place: Element) -> str:
    if isinstance(place.got, int):
        about = "" if abs(place.expected) < 100 else "about "
        return f"got {place.got}, expected {about}{float(_about(place.expected)):.0f}"
    return f"got {place.got:.6g}, expected about {_about(place.expected)}"


def _about(value: float) -> str:
    """Two digits: enough to debug with, too few to be copied."""
    return f"{value:.2g}"


def kernelbench_rule(actual: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether KernelBench would have called this output right: its `allclose` against the float32 reference.

    Its tolerance (`get_tolerance_for_precision` of its `eval.py`, v0.2) is 1e-4, absolute and relative, for float32 and
    1e-2 for float16 and bfloat16; `dtype` is the precision of the run, by default the reference's. Another shape
    or dtype is wrong there too. For comparability only: no verdict here rests on it.
    """
    far = kernelbench_far(actual, reference, dtype)
    return far is not None and int(far) == 0


def kernelbench_far(
    actual: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor | None:
    """How many entries `kernelbench_rule` objects to, at least (0-d, on the device of `actual`, without waiting); None
    for another shape or dtype.
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

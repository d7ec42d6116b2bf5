"""Decide whether an error looks like rounding to a coarser class.

Trusted side; pure functions on tensors of any device. Two signs count. The answer has no more digits than the class.
Or its error follows that of rounded inputs and weights, entry by entry: a mistake does not know where a value happens
to lie between two numbers of a class. See guides/design/tolerances.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch

from harness.core.choices import PrecisionClass
from harness.referee.correctness.compare import is_real
from harness.referee.problem.chunks import ENTRY_BYTES, TEMPORARY_BYTES, slices
from harness.referee.problem.rounding import MANTISSA_BITS, rounds

LEAST_CORRELATION, LEAST_CUT_CORRELATION = 0.4, 0.95
"""Least correlation of an error with that of inputs rounded to nearest, and toward zero.

Rounding intermediate results, too, lowers it from 1. Cutting shrinks all inputs, so a wrong factor correlates with it.
"""

CHANCE = 5.0
"""Least correlation in standard deviations of that of unrelated errors, which is 1 / sqrt(distinct entries)."""

SAMPLE = 2**14
"""Entries that tell how many distinct ones the truth has."""

MOST_TIMES = 4.0
"""Largest ratio, either way, of an error to that of rounding once."""

NO_MORE_DIGITS = 0.99
"""Share of the inexact entries that hold no more digits than the class."""

_FINE = (PrecisionClass.FP32, PrecisionClass.TF32, PrecisionClass.FP16)

_STEP = max(1, TEMPORARY_BYTES // (2 * ENTRY_BYTES))

Nearby = Callable[[PrecisionClass], Iterable[Sequence[torch.Tensor]]]
"""Gives the truths of inputs and weights that are rounded to a class: to nearest, and toward zero."""


def rounded_to(
    number: int, actual: torch.Tensor, truth: torch.Tensor, required: PrecisionClass, nearby: Nearby
) -> PrecisionClass | None:
    """Return the class to which the answer's error looks rounded.

    Args:
        number: Index of this tensor among those of `nearby`.
        actual: The answer, outside its limits.
        truth: The truth, of the same shape.
        required: The class that the answer should reach.
        nearby: Truths of rounded inputs and weights; asked for one class after the other.

    Returns:
        A class coarser than `required`; None if the error looks like no rounding.
    """
    if not is_real(actual) or actual.is_complex() or actual.numel() == 0:
        return None
    order = list(PrecisionClass)
    coarser = order[order.index(required) + 1 :]
    if required in _FINE:  # each class costs two truths, and fp8 stands for all of eight bits and less
        coarser = [precision for precision in coarser if precision in (*_FINE, PrecisionClass.BF16, PrecisionClass.FP8)]
    plain = [precision for precision in coarser if precision in MANTISSA_BITS]
    if (digits := _fewer_digits(actual, truth, plain)) is not None:
        return digits
    sample = truth.reshape(-1)[:: max(1, truth.numel() // SAMPLE)]
    distinct = max(1, int(len(set(sample.tolist())) / sample.numel() * truth.numel()))
    tried = set()
    for precision in coarser:
        digits_of = MANTISSA_BITS.get(precision, precision)
        if digits_of in tried:
            continue  # TF32 and FP16 have the same digits
        tried.add(digits_of)
        for least, leaves in zip((LEAST_CORRELATION, LEAST_CUT_CORRELATION), nearby(precision), strict=False):
            if number < len(leaves) and leaves[number].shape == truth.shape:
                correlation = _correlation(actual, truth, leaves[number])
                if correlation >= max(least, CHANCE / math.sqrt(distinct)):
                    return precision
    return None


def _fewer_digits(
    actual: torch.Tensor, truth: torch.Tensor, coarser: Sequence[PrecisionClass]
) -> PrecisionClass | None:
    """Return the coarsest class whose digits suffice; errors are about a unit."""
    scale = _rms(truth)
    for precision in reversed(coarser):
        if not rounds(actual.dtype, precision):
            continue
        unit = 2.0 ** -MANTISSA_BITS[precision]
        gross = torch.zeros((), dtype=torch.bool, device=actual.device)
        counts = torch.zeros(3, dtype=torch.float64, device=actual.device)
        for _, (a, t) in slices(_STEP, actual, truth):
            assert a is not None
            assert t is not None
            a64, t64 = a.double(), t.to(a.device).double()
            mantissa = torch.frexp(a64).mantissa * 2.0 ** (MANTISSA_BITS[precision] + 1)
            error = ((a64 - t64) / (unit * t64.abs())).nan_to_num_(0.0, 1e3, -1e3).clamp_(-1e3, 1e3)
            inexact = error.abs() > 1e-3
            gross |= ((a64 - t64).abs() > MOST_TIMES * unit * t64.abs().clamp_(min=scale)).any()
            short = inexact & (mantissa == mantissa.round())
            counts += torch.stack((inexact.sum(), short.sum(), (error * error * inexact).sum())).double()
        inexact_count, short_count, squares = counts.tolist()
        if inexact_count and not gross and short_count >= NO_MORE_DIGITS * inexact_count and squares <= inexact_count:
            return precision
    return None


def _correlation(actual: torch.Tensor, truth: torch.Tensor, near: torch.Tensor) -> float:
    """Return how the answer's error correlates with that of `near`.

    A factor and an offset of the truth are removed first.

    It is 0 if the errors differ too much in size. Every entry is divided by its magnitude or the truth's RMS, so that a
    few large ones do not decide.
    """
    scale = _rms(truth)
    if not math.isfinite(scale) or scale == 0.0:
        return 0.0
    products = torch.zeros(4, 4, dtype=torch.float64, device=actual.device)
    for _, (a, t, n) in slices(_STEP, actual, truth, near):
        assert a is not None
        assert t is not None
        assert n is not None
        a64, t64, n64 = a.double(), t.to(a.device).double(), n.to(a.device).double()
        size = t64.abs().clamp_(min=scale)
        rows = torch.stack(((a64 - t64) / size, (n64 - t64) / size, t64 / size, 1.0 / size))
        rows = torch.where(torch.isfinite(rows).all(dim=0), rows, 0.0)
        products += rows @ rows.T
    held = products.cpu()
    error, other = float(held[0, 0]), float(held[1, 1])
    if not (error > 0.0 and other > 0.0 and error <= MOST_TIMES**2 * other and other <= MOST_TIMES**2 * error):
        return 0.0
    common = held[2:, 2:]
    left = held[:2, :2] - held[:2, 2:] @ torch.linalg.pinv(common, hermitian=True) @ held[2:, :2]
    if float(left[0, 0]) <= 1e-6 * error or float(left[1, 1]) <= 1e-6 * other:
        return 0.0  # nothing but a factor or an offset
    return float(left[0, 1]) / math.sqrt(float(left[0, 0]) * float(left[1, 1]))


def _rms(truth: torch.Tensor) -> float:
    squares = [torch.linalg.vector_norm(t.double()) for _, (t,) in slices(_STEP, truth) if t is not None]
    return float(torch.linalg.vector_norm(torch.stack(squares))) / math.sqrt(truth.numel())

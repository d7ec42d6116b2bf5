"""Compares an output tensor with the truth: real types by their errors, exact ones entry by entry.

Imports `model`, `precision`, `patterns`, `slicing`, `readings`, `comparison_kernel`, `comparison_real` (which defines
the errors) and torch. Pure: tensors in, values out; trusted side.

**Exact types.** Integers and bools equal the truth, or the float32 reference where that is given: an index of a
maximum depends on ties that rounding makes.

**Later.** `compare` says all that is to be said of one pair, and waits for it. `enqueue` starts what is enough for an
answer that is right; of many pairs everything is then read at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from harness.core.choices import PrecisionClass
from harness.referee.correctness import compare_float
from harness.referee.correctness.compare_float import RealComparer
from harness.referee.correctness.compare_float_cuda import MeasuredErrors
from harness.referee.correctness.deferred_values import DeferredValues
from harness.referee.correctness.error_patterns import Marginals
from harness.referee.correctness.precision import LIMITS, Element, ErrorLimits, TensorComparison
from harness.referee.problem.chunks import ENTRY_BYTES, TEMPORARY_BYTES, count_unwritten, slices, unravel


def compare(
    actual: torch.Tensor,
    truth: torch.Tensor,
    *,
    reference: torch.Tensor | None = None,
    limits: ErrorLimits | None = None,
    poison_byte: int | None = None,
) -> TensorComparison:
    """Compare an output with the truth, and with the float32 `reference` where those two differ in kind.

    All of one shape, on any devices (the work is done on `actual`'s); `truth` and `reference` float where
    `actual` is. `limits` are those that the answer must keep (`numerics.limits_for`; default: the fp32 class); only
    beyond them are places and a pattern looked for. `poison_byte` is what the output's bytes held before the call:
    entries that still hold it are counted as never written.

    Raises `ValueError` where shapes or kinds of dtype differ, which is to be judged before, or where the truth is
    too large for its square (beyond 1e150).
    """
    if reference is not None:
        _check_alike(actual, reference, "reference")
        reference = _real_parts(reference)
    _check_alike(actual, truth, "truth")
    actual, truth = _real_parts(actual), _real_parts(truth)
    if is_real(actual):
        return RealComparer(actual, truth, reference, limits or LIMITS[PrecisionClass.FP32], poison_byte).run()
    return _compare_exact(actual, truth, reference, poison_byte)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A comparison under way. `number` is that of its values among the readings; None where there is no entry."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    number: int | None

    def right(self, readings: DeferredValues, limits: ErrorLimits) -> TensorComparison | None:
        """What `compare` says of the pair, once its values were read; None where they do not prove that the answer
        keeps within `limits`, so that there is more to be said of it.
        """
        real = self.dtype.is_floating_point
        if self.number is None:
            return compare_float.nothing(self.dtype, self.shape) if real else _equal(self.dtype, self.shape)
        values = readings[self.number]
        if real:
            return compare_float.right_by(MeasuredErrors.of(values), self.dtype, self.shape, limits)
        return _equal(self.dtype, self.shape) if values[0] == 0 else None


def enqueue(actual: torch.Tensor, truth: torch.Tensor, readings: DeferredValues) -> Pending | None:
    """Start comparing an output with the truth, without waiting for the device; the values will be among `readings`.

    None where only `compare` can do it: real numbers on other devices than GPUs, and types without a kernel. The
    tensors may be dropped at once. Raises `ValueError` as `compare` does.
    """
    _check_alike(actual, truth, "truth")
    actual, truth = _real_parts(actual), _real_parts(truth)
    number = None
    if actual.numel():
        if is_real(actual):
            row = compare_float.enqueue(actual, truth)
        else:
            row = _differing(actual, truth) if truth.device == actual.device else None
        if row is None:
            return None
        number = readings.add(row)
    return Pending(dtype=actual.dtype, shape=tuple(actual.shape), number=number)


def _check_alike(actual: torch.Tensor, other: torch.Tensor, name: str) -> None:
    if other.shape != actual.shape:
        raise ValueError(f"{name} has shape {tuple(other.shape)}, the output {tuple(actual.shape)}")
    if is_real(other) != is_real(actual) or other.is_complex() != actual.is_complex():
        raise ValueError(f"{name} is {other.dtype}, the output {actual.dtype}")


def _real_parts(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs of real ones."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def is_real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


_STEP = max(1, TEMPORARY_BYTES // ENTRY_BYTES)


def _differing(actual: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """How many entries differ (int64, on the device of `actual`, without waiting)."""
    found = torch.zeros((), dtype=torch.int64, device=actual.device)
    for _, (a, t) in slices(_STEP, actual, truth) if actual.numel() else ():
        found += (_whole(a, actual.device) != _whole(t, actual.device)).sum()
    return found


def _whole(piece: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """As int64, so that types of different width compare."""
    assert piece is not None
    return piece.to(device=device, dtype=torch.int64)


def _equal(dtype: torch.dtype, shape: tuple[int, ...]) -> TensorComparison:
    count = math.prod(shape)
    name = str(dtype).removeprefix("torch.")
    return TensorComparison(dtype=name, shape=shape, count=count, compared=count, exact=True)


def _compare_exact(
    actual: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor | None, poison_byte: int | None
) -> TensorComparison:
    """Integers and bools, entry by entry."""
    equal = _equal(actual.dtype, tuple(actual.shape))
    if int(_differing(actual, truth)) == 0:
        return equal
    marginals = Marginals(actual.shape)
    borrowed = torch.zeros((), dtype=torch.int64, device=actual.device)
    for start, (a, t, r) in slices(_STEP, actual, truth, reference):
        a64 = _whole(a, actual.device)
        off = a64 != _whole(t, actual.device)
        if r is not None:
            lent = off & (a64 == _whole(r, actual.device))
            borrowed += lent.sum()
            off &= ~lent
        marginals.add(off, start)

    def place(flat: int) -> Element:
        index = unravel(flat, actual.shape)
        return Element(index=index, got=int(actual[index]), expected=int(truth[index]))

    return replace(
        equal,
        borrowed=int(borrowed),
        wrong=marginals.wrong,
        unwritten=count_unwritten(actual, poison_byte, _STEP) if marginals.wrong else None,
        first=None if marginals.first is None else place(marginals.first),
        pattern=marginals.describe(),
    )

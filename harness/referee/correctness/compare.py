"""Compare an output tensor with the truth.

Trusted side; pure functions. Floating-point types are compared by errors, exact types by equality. `compare_float.py`
defines the errors. Integers and bools must equal the truth, or the float32 reference if that is given: a count may
depend on rounding. Indices come here as the values that they point to (`problem/choices.py`).

`compare` reports everything about one pair and waits for it. `enqueue` starts only the work that a correct answer
needs; the results of many pairs are then read together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from harness.core.choices import PrecisionClass
from harness.referee.correctness import compare_float
from harness.referee.correctness.compare_float import RealComparer
from harness.referee.correctness.compare_float_cuda import MeasuredErrors
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
    """Compare an output with the truth.

    All tensors have one shape and may be on any devices; the work is done on the device of `actual`.

    Args:
        actual: The output.
        truth: The reference's float64 output, floating-point if `actual` is.
        reference: The float32 reference's output; an entry may match it if it differs from the truth in kind (an
            exact value, or a non-finite one).
        limits: Limits that the answer must keep (`tolerance.limits_for`). Default: the table's for fp32. Places and
            patterns are searched only beyond them.
        poison_byte: Value of the output's bytes before the call. Entries that still have it are counted as never
            written.

    Raises:
        ValueError: If shapes or kinds of dtype differ (judge these before), or if the truth exceeds 1e150, so that its
            square overflows.
    """
    if reference is not None:
        _check_alike(actual, reference, "reference")
        reference = _real_parts(reference)
    _check_alike(actual, truth, "truth")
    actual, truth = _real_parts(actual), _real_parts(truth)
    if is_real(actual):
        return RealComparer(actual, truth, reference, limits or LIMITS[PrecisionClass.FP32], poison_byte).run()
    return _compare_exact(actual, truth, reference, poison_byte)


class DeferredValues:
    """Small results on one device, copied to the host together.

    Nothing waits between two copies, so the device works on one call's answer while the next one's work is enqueued.
    """

    def __init__(self) -> None:
        self._rows: list[torch.Tensor] = []
        self._values: list[Sequence[float]] = []

    def add(self, row: torch.Tensor) -> int:
        """Add a result whose values are still being computed; return its number.

        The values are floats, or integers up to 2**53.
        """
        self._rows.append(row.detach().view(-1))
        return len(self._values) + len(self._rows) - 1

    def read(self) -> None:
        """Wait for the results that were added since the last call."""
        if not self._rows:
            return
        values = torch.cat([row.double() for row in self._rows]).tolist()
        begin = 0
        for row in self._rows:
            self._values.append(values[begin : begin + row.numel()])
            begin += row.numel()
        self._rows.clear()

    def __getitem__(self, number: int) -> Sequence[float]:
        """Return the values of result `number`, which was read."""
        return self._values[number]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A comparison in progress.

    `number` is the index of its values among the readings. It is None if the output is empty.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    number: int | None

    def right(self, readings: DeferredValues, limits: ErrorLimits) -> TensorComparison | None:
        """Return the result of `compare` if the values prove the answer correct.

        Returns:
            The comparison; None if the values do not prove that the answer is within `limits`, so that `compare` is
            needed.
        """
        real = self.dtype.is_floating_point
        if self.number is None:
            return compare_float.nothing(self.dtype, self.shape) if real else _equal(self.dtype, self.shape)
        values = readings[self.number]
        if real:
            return compare_float.right_by(MeasuredErrors.of(values), self.dtype, self.shape, limits)
        return _equal(self.dtype, self.shape) if values[0] == 0 else None


def enqueue(actual: torch.Tensor, truth: torch.Tensor, readings: DeferredValues) -> Pending | None:
    """Start comparing an output with the truth, without waiting for the device.

    The tensors may be freed at once.

    Args:
        actual: The output.
        truth: The reference's float64 output, of the same shape.
        readings: Receives the values.

    Returns:
        The comparison in progress; None if only `compare` supports the pair: floating-point types on another device
        than a GPU, and types without a kernel.

    Raises:
        ValueError: As `compare`.
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
    """View complex numbers as pairs of real ones."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def is_real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


_STEP = max(1, TEMPORARY_BYTES // ENTRY_BYTES)


def _differing(actual: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Count the entries that differ, without waiting for the device.

    The count is an int64 tensor on the device of `actual`.
    """
    found = torch.zeros((), dtype=torch.int64, device=actual.device)
    for _, (a, t) in slices(_STEP, actual, truth) if actual.numel() else ():
        found += (_whole(a, actual.device) != _whole(t, actual.device)).sum()
    return found


def _whole(piece: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """Convert to int64, so that types of different width compare."""
    assert piece is not None
    return piece.to(device=device, dtype=torch.int64)


def _equal(dtype: torch.dtype, shape: tuple[int, ...]) -> TensorComparison:
    count = math.prod(shape)
    name = str(dtype).removeprefix("torch.")
    return TensorComparison(dtype=name, shape=shape, count=count, compared=count, exact=True)


def _compare_exact(
    actual: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor | None, poison_byte: int | None
) -> TensorComparison:
    """Compare integers and bools entry by entry."""
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

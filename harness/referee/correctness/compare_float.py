"""Measure the errors of a floating-point output: size, places, kinds of values.

Trusted side; pure functions on tensors of any device, in slices of `TEMPORARY_BYTES`. For a correct answer on a GPU the
kernels of `compare_float_cuda.py` suffice; their values may be read later (`enqueue`, `right_by`).

Scale: with t the truth (the reference in float64) and rms its root mean square over its finite entries,

        rms_error = rms(a - t) / rms(t)        max_error = max_i |a_i - t_i| / max(rms(t), |t_i|)

If the truth is all zero (rms below the output type's smallest normal number), the scale is `ZERO_SCALE`. Complex
numbers are pairs of real ones.

Rounding of the output: for float16, bfloat16 and float8, `|t_i| * eps / 2` (at least half the smallest subnormal) is
subtracted from each difference, because no answer can be closer.

Non-finite values: their places and kinds (NaN, +inf, -inf) must be those of the truth rounded to the output's type, or
those of the float32 reference. See guides/design/tolerances.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from harness.referee.correctness import compare_float_cuda
from harness.referee.correctness.compare_float_cuda import MeasuredErrors
from harness.referee.correctness.error_patterns import (
    Marginals,
    describe_rearrangement,
    describe_transformation,
    moments,
)
from harness.referee.correctness.precision import Element, ErrorLimits, TensorComparison
from harness.referee.problem.chunks import ENTRY_BYTES, TEMPORARY_BYTES, count_unwritten, slices, unravel

ZERO_SCALE = 2.0**-5
"""Absolute scale of errors if the truth is all zero.

Cancellation of numbers near 1 in float32 leaves 1e-7; fp32 then allows that, and 1.2e-6 in one place.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errors:
    """Errors of one slice.

    The masks exist only in the masked arithmetic: entries whose kinds clash, entries taken from the reference, and
    entries compared as numbers.
    """

    start: int
    error: torch.Tensor
    scaled: torch.Tensor
    clash: torch.Tensor | None = None
    lent: torch.Tensor | None = None
    numbers: torch.Tensor | None = None

    def beyond(self, limit: float) -> torch.Tensor:
        """Return the mask of entries that are not proven to be within `limit`."""
        off = ~(self.scaled <= limit)
        return off if self.clash is None else off | self.clash


@dataclass(frozen=True, slots=True, kw_only=True)
class _Totals:
    compared: int
    rms_error: float
    max_error: float
    clashes: int
    lent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Findings:
    wrong: int = 0
    beyond: float | None = None
    first_at: int | None = None
    rest_rms_error: float | None = None
    unwritten: int | None = None
    pattern: str = ""


def enqueue(actual: torch.Tensor, truth: torch.Tensor) -> torch.Tensor | None:
    """Start measuring a pair of one shape on a GPU, without waiting.

    Returns:
        The tensor that will hold the values for `MeasuredErrors.of`; None if there is nothing to measure, or no kernel
        for the pair.
    """
    info = torch.finfo(actual.dtype)
    terms = compare_float_cuda.ErrorScale(
        half_unit=float(info.eps) / 2 if actual.element_size() < 4 else 0.0,
        least_slack=_smallest_subnormal(info) / 2,
        least_scale=float(info.smallest_normal),
        zero_scale=ZERO_SCALE,
    )
    return compare_float_cuda.enqueue(actual, truth, terms)


def right_by(
    measured: MeasuredErrors, dtype: torch.dtype, shape: tuple[int, ...], limits: ErrorLimits
) -> TensorComparison | None:
    """Return the comparison of an output if `measured` proves it within its limits.

    Args:
        measured: Values of the kernels.
        dtype: The output's dtype.
        shape: The output's shape.
        limits: Limits that the answer must keep.

    Returns:
        The comparison, or None if there is no proof.
    """
    info = torch.finfo(dtype)
    if not _is_plain(measured.truth_top, measured.actual_top, info):
        return None
    count = math.prod(shape)
    rms, spread = _rms_and_spread(measured.norm, measured.total, count)
    if not math.isfinite(rms):
        return None
    totals = _totals(measured.error_norm, measured.error_top, count, _scale(rms, info))
    right = limits.admits(totals.rms_error, totals.max_error)
    return _comparison(dtype, shape, (rms, spread, count), totals) if right else None


def nothing(dtype: torch.dtype, shape: tuple[int, ...]) -> TensorComparison:
    """Return the comparison of an empty output."""
    return TensorComparison(dtype=_name(dtype), shape=shape, count=0, compared=0, exact=False)


class RealComparer:
    """One comparison of floating-point tensors.

    Pass A measures the scale, pass B the errors; passes C and D search places. `compare.compare` has checked the
    arguments: all of one shape, floating-point, complex numbers as pairs.
    """

    def __init__(
        self,
        actual: torch.Tensor,
        truth: torch.Tensor,
        reference: torch.Tensor | None,
        limits: ErrorLimits,
        poison_byte: int | None,
    ) -> None:
        self.actual, self.truth, self.reference = actual, truth, reference
        self.limits = limits
        self.poison_byte = poison_byte
        self.info = torch.finfo(actual.dtype)
        self.top = float(self.info.max)
        self.bits = actual.element_size() * 8
        self.device = actual.device
        self.step = max(1, TEMPORARY_BYTES // ENTRY_BYTES)
        self.scale = 0.0
        self.careful = False
        self.measured: MeasuredErrors | None = None

    def run(self) -> TensorComparison:
        dtype, shape = self.actual.dtype, tuple(self.actual.shape)
        if self.actual.numel() == 0:
            return nothing(dtype, shape)
        if (row := enqueue(self.actual, self.truth)) is not None:
            self.measured = MeasuredErrors.of(row.tolist())
            if (right := right_by(self.measured, dtype, shape, self.limits)) is not None:
                return right
        rms, spread, finite = self._measure_truth()
        if not math.isfinite(rms):
            raise ValueError("the truth is too large to be squared in float64")
        self.scale = _scale(rms, self.info)
        totals, worst_at = self._measure_errors(finite)
        if totals.clashes == 0 and self.limits.admits(totals.rms_error, totals.max_error):
            return _comparison(dtype, shape, (rms, spread, finite), totals)
        found = self._diagnose()
        return replace(
            _comparison(dtype, shape, (rms, spread, finite), totals),
            rest_rms_error=found.rest_rms_error,
            wrong=found.wrong,
            wrong_beyond=found.beyond,
            unwritten=found.unwritten,
            first=None if found.first_at is None else self._place(found.first_at),
            worst=self._place(worst_at) if totals.compared else None,
            pattern=found.pattern,
        )

    def _measure_truth(self) -> tuple[float, float, int]:
        """Pass A: return RMS and standard deviation over finite entries, and their number.

        At most one synchronisation. Sets `careful` if non-finite or unrepresentable entries need the masked arithmetic.
        """
        norm, total_value, truth_largest, actual_largest = self.measured.of_truth if self.measured else self._moments()
        count = self.actual.numel()
        self.careful = not _is_plain(truth_largest, actual_largest, self.info)
        if self.careful:
            self.step = max(1, self.step // 2)  # the masked arithmetic needs twice as many temporaries
            norm, total_value, count = self._measure_finite_truth()
        return (*_rms_and_spread(norm, total_value, count), count)

    def _moments(self) -> tuple[float, float, float, float]:
        """Return norm and sum of the truth, its largest magnitude, and the output's.

        A value is NaN or infinite if any entry is.
        """
        norms, sums, tops = [], [], []
        for _, (a, t) in slices(self.step, self.actual, self.truth):
            t64 = self._double(t)
            norms.append(torch.linalg.vector_norm(t64))
            sums.append(t64.sum())
            tops.append(torch.stack((t64.abs_().amax() if t64 is not t else t64.abs().amax(), self._largest(a))))
        square = torch.linalg.vector_norm(torch.stack(norms))
        total = torch.stack(sums).sum()
        truth_top, actual_top = torch.stack(tops).amax(dim=0)
        norm, total_value, truth_largest, actual_largest = torch.stack((square, total, truth_top, actual_top)).tolist()
        return norm, total_value, truth_largest, actual_largest

    def _measure_finite_truth(self) -> tuple[float, float, int]:
        parts = []
        for _, (t,) in slices(self.step, self.truth):
            t64 = self._clamped(self._double(t))
            finite = torch.isfinite(t64)
            t64 = torch.where(finite, t64, 0.0)
            parts.append(torch.stack((torch.linalg.vector_norm(t64), t64.sum(), finite.sum().double())))
        held = torch.stack(parts)
        values = torch.stack((torch.linalg.vector_norm(held[:, 0]), held[:, 1].sum(), held[:, 2].sum())).tolist()
        return values[0], values[1], int(values[2])

    def _measure_errors(self, compared: int) -> tuple[_Totals, int]:
        """Pass B: return the totals, and the flat index of the largest scaled error."""
        if self.measured is not None and not self.careful:
            norm, largest = self.measured.error_norm, self.measured.error_top
            return _totals(norm, largest, compared, self.scale), self.measured.error_at
        norms, tops, places, counts, starts = [], [], [], [], []
        for held in self._errors():
            norms.append(torch.linalg.vector_norm(held.error))
            top = held.scaled.max(dim=0)
            tops.append(top.values)
            places.append(top.indices)
            starts.append(held.start)
            if held.clash is not None and held.lent is not None and held.numbers is not None:
                counts.append(torch.stack((held.clash.sum(), held.lent.sum(), held.numbers.sum())))
        best = torch.stack(tops).argmax()
        norm, largest, piece, place = torch.stack(
            (
                torch.linalg.vector_norm(torch.stack(norms)),
                torch.stack(tops)[best],
                best.double(),
                torch.stack(places)[best].double(),
            )
        ).tolist()
        clashes = lent = 0
        if counts:
            clashes, lent, compared = (int(v) for v in torch.stack(counts).sum(dim=0).tolist())
        return _totals(norm, largest, compared, self.scale, clashes, lent), starts[int(piece)] + int(place)

    def _errors(self) -> Iterator[_Errors]:
        """Yield |a - t| beyond rounding, absolute and scaled, slice by slice."""
        for start, (a, t, r) in slices(self.step, self.actual, self.truth, self.reference):
            t64 = self._double(t)
            a64 = self._double(a)
            clash = lent = numbers = None
            if self.careful:
                a64, t64, clash, lent, numbers = self._sort_kinds(a64, t64, r)
            # Do not overwrite a float64 output itself.
            error = a64 - t64 if a64 is a else a64.sub_(t64)
            error.abs_()
            size = t64.abs()
            if self.bits < 32:
                slack = size.mul(float(self.info.eps) / 2).clamp_(min=_smallest_subnormal(self.info) / 2)
                error.sub_(slack).clamp_(min=0.0)
                del slack
            scaled = error / size.clamp_(min=self.scale)
            yield _Errors(start=start, error=error, scaled=scaled, clash=clash, lent=lent, numbers=numbers)

    def _sort_kinds(
        self, a64: torch.Tensor, t64: torch.Tensor, reference: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the finite parts of `a64` and `t64`, and masks of kinds of entries.

        The parts are zero elsewhere. The masks are `clash`, `lent` and `numbers`.
        """
        eps = float(self.info.eps)
        agree = torch.zeros_like(a64, dtype=torch.bool)
        for nearby in (0.0, 2 * eps, -2 * eps):
            agree |= _same_kind(a64, self._rounded(t64 * (1.0 + nearby)))
        if self.bits == 8:
            # Saturating and non-saturating conversions are both in use for these types.
            beyond = t64.abs() > self.top
            agree |= beyond & (~torch.isfinite(a64) | (a64 == t64.sign() * self.top))
        lent = torch.zeros_like(agree)
        if reference is not None:
            r64 = self._double(reference)
            clashing = ~agree & _same_kind(a64, r64)
            # If only float64 is non-finite, the output must match the float32 reference's finite value.
            stands_in = clashing & torch.isfinite(r64)
            t64 = torch.where(stands_in, r64, t64)
            lent = clashing
            agree = agree | clashing
        numbers = torch.isfinite(a64) & torch.isfinite(t64) & agree
        zero = torch.zeros((), dtype=torch.float64, device=a64.device)
        a_part, t_part = torch.where(numbers, a64, zero), torch.where(numbers, self._clamped(t64), zero)
        return a_part, t_part, ~agree, lent, numbers

    def _diagnose(self) -> _Findings:
        """Count and describe the wrong entries (passes C and D).

        Find the first wrong entry, and the pattern or a simple transformation.
        """
        count = self.actual.numel()
        # If the entries beyond the single limit explain the error, only they are wrong; else all beyond the RMS limit.
        for beyond in (self.limits.max, self.limits.rms):
            marginals = Marginals(self.actual.shape)
            rest = torch.zeros((), dtype=torch.float64, device=self.device)
            for held in self._errors():
                off = held.beyond(beyond)
                marginals.add(off, held.start)
                rest += held.error.masked_fill_(off, 0.0).square_().sum()
            left = count - marginals.wrong
            if marginals.wrong and (not left or math.sqrt(float(rest) / left) <= self.limits.rms * self.scale):
                break
        pattern = ""
        if not self.careful:
            sums = [
                moments(self._double(a), self._double(t)) for _, (a, t) in slices(self.step, self.actual, self.truth)
            ]
            pattern = describe_transformation(torch.stack(sums).sum(dim=0).tolist(), count)
            pattern = pattern or describe_rearrangement(self.actual, self.truth, self.scale)
        return _Findings(
            wrong=marginals.wrong,
            beyond=beyond,
            first_at=marginals.first,
            rest_rms_error=math.sqrt(float(rest) / left) / self.scale if left else None,
            unwritten=count_unwritten(self.actual, self.poison_byte, self.step),
            pattern=pattern or marginals.describe(),
        )

    def _place(self, flat: int) -> Element:
        index = unravel(flat, self.actual.shape)
        return Element(index=index, got=float(self.actual[index]), expected=float(self.truth[index]))

    def _double(self, piece: torch.Tensor | None) -> torch.Tensor:
        assert piece is not None
        return piece.to(device=self.device, dtype=torch.float64)

    def _largest(self, piece: torch.Tensor | None) -> torch.Tensor:
        """Return the largest magnitude as float64; NaN if any entry is."""
        assert piece is not None
        if self.bits == 8:
            piece = piece.float()
        largest: torch.Tensor = torch.linalg.vector_norm(piece, ord=math.inf)
        return largest.double()

    def _rounded(self, t64: torch.Tensor) -> torch.Tensor:
        rounded: torch.Tensor = t64.to(self.actual.dtype).double()
        return rounded

    def _clamped(self, t64: torch.Tensor) -> torch.Tensor:
        """Clamp finite entries beyond the type's range to its largest number."""
        return torch.where(torch.isfinite(t64), t64.clamp(min=-self.top, max=self.top), t64)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_plain(truth_top: float, actual_top: float, info: torch.finfo) -> bool:
    """Return whether all entries are finite and the truth fits the output type."""
    return truth_top <= info.max and math.isfinite(actual_top)


def _rms_and_spread(norm: float, total: float, count: int) -> tuple[float, float]:
    """Return RMS and standard deviation, from norm and sum of `count` entries."""
    if count == 0:
        return 0.0, 0.0
    rms, mean = norm / math.sqrt(count), total / count
    return rms, math.sqrt(max(0.0, rms * rms - mean * mean)) if math.isfinite(rms) else 0.0


def _scale(rms: float, info: torch.finfo) -> float:
    return rms if rms >= float(info.smallest_normal) else ZERO_SCALE


def _totals(norm: float, largest: float, compared: int, scale: float, clashes: int = 0, lent: int = 0) -> _Totals:
    most = sys.float_info.max  # first argument of min, so that NaN (from a late write) becomes this, too
    return _Totals(
        compared=compared,
        rms_error=min(most, norm / math.sqrt(max(compared, 1)) / scale),
        max_error=min(most, largest),
        clashes=clashes,
        lent=lent,
    )


def _comparison(
    dtype: torch.dtype, shape: tuple[int, ...], truth: tuple[float, float, int], totals: _Totals
) -> TensorComparison:
    """Build a comparison without findings on wrong entries.

    `truth` contains the truth's RMS, standard deviation, and number of finite entries.
    """
    rms, spread, finite = truth
    return TensorComparison(
        dtype=_name(dtype),
        shape=shape,
        count=math.prod(shape),
        compared=totals.compared,
        exact=False,
        truth_rms=rms if finite else None,
        truth_spread=spread if finite else None,
        rms_error=totals.rms_error if totals.compared else None,
        max_error=totals.max_error if totals.compared else None,
        non_finite_mismatches=totals.clashes,
        borrowed=totals.lent,
    )


def _same_kind(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the mask of entries that are both finite, both NaN, or the same infinity."""
    return torch.where(torch.isfinite(a), torch.isfinite(b), (a == b) | (torch.isnan(a) & torch.isnan(b)))


def _smallest_subnormal(info: torch.finfo) -> float:
    return float(info.smallest_normal) * float(info.eps)

"""Numbers as arithmetic of a precision class would hold them: each value rounded once, in several ways.

Imports `model`, `slicing` and torch. Pure; trusted side. What that does to the truth, done to inputs and weights, is
how far right answers of the class may lie from it, whatever they compute (`numerics.sensitivities`).

Only the mantissa is rounded, in fp16 to no less than its smallest subnormal number: nothing becomes infinite here, and
nothing zero, nor does anything pass a number that the class can hold, such as the 1 that bounds probabilities. Where
the class itself has no number for a value, an answer of it is wrong in kind, which no limit allows.
"""

from __future__ import annotations

from enum import Enum

import torch

from harness.core.choices import PrecisionClass
from harness.referee.problem.chunks import ENTRY_BYTES, TEMPORARY_BYTES, slices

MANTISSA_BITS = {PrecisionClass.TF32: 10, PrecisionClass.FP16: 10, PrecisionClass.BF16: 7, PrecisionClass.FP8: 3}
"""Explicit bits. fp8 stands for e4m3, the finer of its two formats; fp32 is nobody's to round to."""

LEAST_UNIT = {PrecisionClass.FP16: 2.0**-24}
"""Units in the last place are at least this large. Types with the exponents of float32 have no such bound to speak of,
and fp8 is used with a scale."""


class Rounding(Enum):
    """A way of rounding, and what its error counts for (that to nearest: one)."""

    NEAREST = ("nearest", 1.0)
    """As conversions do."""
    CUT = ("cut", 0.375)
    """Toward zero, as tensor cores take float32 for tf32. Its errors have one sign, so that they add up along a chain
    of products where those of other ways cancel; what such code does lies up to half above what cut inputs and weights
    do (found on the shipped convolutions). If all of it counted, bf16 would come close to what tf32 is allowed."""
    JITTER = ("jitter", 1.0)
    """By up to half a unit either way, but to neighbours in the class at most: a probability stays one. Who scales or
    shifts inputs before they are rounded rounds them so: another way for every factor. Two values that nearest and cut
    happen to move alike are moved apart."""
    OTHER_JITTER = ("other jitter", 1.0)
    """Once more, since a single draw may move them alike, too."""

    def __init__(self, label: str, weight: float) -> None:
        self.label = label
        self.weight = weight


def rounds(dtype: torch.dtype, precision: PrecisionClass) -> bool:
    """Whether tensors of this dtype can hold more digits than the class."""
    bits = MANTISSA_BITS.get(precision)
    return bits is not None and (dtype.is_floating_point or dtype.is_complex) and torch.finfo(dtype).eps < 2.0**-bits


def rounded(tensor: torch.Tensor, precision: PrecisionClass, way: Rounding, seed: int) -> torch.Tensor:
    """A copy of `tensor`, of its shape and dtype, with values rounded to the class; what the class can hold stays as it
    is, so that labels, flags and whole numbers do. The tensor itself where none can change.

    `seed` decides the jitter. Needs `TEMPORARY_BYTES` beside the copy.
    """
    if not rounds(tensor.dtype, precision):
        return tensor
    if tensor.is_complex():
        return torch.view_as_complex(rounded(torch.view_as_real(tensor.resolve_conj()), precision, way, seed))
    top = torch.finfo(tensor.dtype).max
    generator = torch.Generator(tensor.device).manual_seed(seed ^ _OTHER if way is Rounding.OTHER_JITTER else seed)
    result = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    flat = result.view(-1)
    if tensor.numel():
        for start, (piece,) in slices(max(1, TEMPORARY_BYTES // (2 * ENTRY_BYTES)), tensor):
            assert piece is not None
            x = piece.double()
            moved = _rounded(x, precision, way, generator)
            flat[start : start + piece.numel()] = torch.where(moved.abs() <= top, moved, x).to(tensor.dtype)
    return result


_OTHER = 0x5EED
"""Keeps the generators of the two jitters apart."""

_EXPONENT = 0x7FF0_0000_0000_0000
"""The bits of a float64 that say which power of two it lies above."""


def _rounded(x: torch.Tensor, precision: PrecisionClass, way: Rounding, generator: torch.Generator) -> torch.Tensor:
    power = (x.view(torch.int64) & _EXPONENT).view(torch.float64)
    unit = power.mul_(2.0 ** -MANTISSA_BITS[precision])
    if (least := LEAST_UNIT.get(precision)) is not None:
        unit.clamp_(min=least)
    units = x / unit
    if way in (Rounding.JITTER, Rounding.OTHER_JITTER):
        shift = torch.rand(x.shape, dtype=torch.float64, device=x.device, generator=generator).sub_(0.5)
        whole = shift.add_(units).clamp_(units.floor(), units.ceil())
    else:
        whole = units.trunc() if way is Rounding.CUT else units.round()
    # Zero has no unit, what is not finite stays what it is, and so does what would become zero, as which it lies
    # outside of many functions' domain.
    held = torch.isfinite(units) & (units.abs() >= 0.5) & (whole.abs() >= 0.5)
    return torch.where(held, whole * unit, x)

"""Round values as arithmetic of a precision class would, in several ways.

Trusted side. The truth of rounded inputs and weights shows how far correct answers of a class may differ from the truth
(`Reference.nearby`). Only the mantissa is rounded; no value becomes infinite, zero, or larger than a number that the
class has, for example the 1 that bounds probabilities. Formats with a scale for each block (`block_formats.py`) are
rounded as their definitions say. See guides/design/reference_and_truth.md.
"""

from __future__ import annotations

from enum import Enum

import torch

from harness.core.choices import PrecisionClass
from harness.referee.problem.block_formats import BLOCK_FORMATS, BlockFormat
from harness.referee.problem.chunks import ENTRY_BYTES, TEMPORARY_BYTES, slices

MANTISSA_BITS = {
    PrecisionClass.TF32: 10,
    PrecisionClass.FP16: 10,
    PrecisionClass.BF16: 7,
    PrecisionClass.FP8_E4M3: 3,
    PrecisionClass.FP8_E5M2: 2,
    PrecisionClass.FP8: 3,
}
"""Explicit mantissa bits of the classes without blocks (`BLOCK_FORMATS`).

fp8 stands for e4m3, the finer of its two formats; fp32 is never rounded to.
"""

LEAST_UNIT = {PrecisionClass.FP16: 2.0**-24}
"""Smallest unit in the last place: fp16's smallest subnormal number.

The other types have float32's exponents, or are used with a scale (fp8).
"""


_STEP = max(1, TEMPORARY_BYTES // (2 * ENTRY_BYTES))


class Rounding(Enum):
    """A way of rounding, and the weight of its error relative to rounding to nearest."""

    NEAREST = ("nearest", 1.0)
    """Round to nearest, as conversions do."""
    CUT = ("cut", 0.375)
    """Toward zero, as tensor cores convert float32 to tf32.

    Its errors have one sign and add up along a chain of products, where other ways cancel. Real code errs up to 1.5
    times as much as cut inputs and weights (measured on the shipped convolutions). With the full weight, bf16 would
    come close to the limits of tf32.
    """
    JITTER = ("jitter", 1.0)
    """By up to half a unit either way, but only to neighbours in the class: a probability stays at most one.

    This models code that scales or shifts inputs before rounding. It separates two values that nearest and cut move
    alike.
    """
    OTHER_JITTER = ("other jitter", 1.0)
    """A second draw: one may move two values alike."""

    def __init__(self, label: str, weight: float) -> None:
        self.label = label
        self.weight = weight


def rounds(dtype: torch.dtype, precision: PrecisionClass) -> bool:
    """Return whether tensors of this dtype hold more digits than the class."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return False
    if precision in BLOCK_FORMATS:
        return dtype.itemsize > 1  # 8-bit types hold what was quantised already
    bits = MANTISSA_BITS.get(precision)
    return bits is not None and torch.finfo(dtype).eps < 2.0**-bits


def rounded(tensor: torch.Tensor, precision: PrecisionClass, way: Rounding, seed: int) -> torch.Tensor:
    """Round a tensor's values to a class.

    Values that the class has stay unchanged, so labels, flags and whole numbers do.

    Args:
        tensor: Any shape and dtype.
        precision: The class.
        way: The way of rounding.
        seed: Decides the jitter.

    Returns:
        A copy of the same shape and dtype, or `tensor` itself if no value can change. Needs `TEMPORARY_BYTES` beyond
        the copy.
    """
    if not rounds(tensor.dtype, precision):
        return tensor
    if tensor.is_complex():
        return torch.view_as_complex(rounded(torch.view_as_real(tensor.resolve_conj()), precision, way, seed))
    top = torch.finfo(tensor.dtype).max
    generator = torch.Generator(tensor.device).manual_seed(seed ^ _OTHER if way is Rounding.OTHER_JITTER else seed)
    result = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    flat = result.view(-1)
    if tensor.numel() and (form := BLOCK_FORMATS.get(precision)) is not None:
        _round_blocks(tensor, result, form, way, generator)
    elif tensor.numel():
        for start, (piece,) in slices(_STEP, tensor):
            assert piece is not None
            x = piece.double()
            moved = _rounded(x, precision, way, generator)
            flat[start : start + piece.numel()] = torch.where(moved.abs() <= top, moved, x).to(tensor.dtype)
    return result


_OTHER = 0x5EED
"""Separates the generators of the two jitters."""

_EXPONENT = 0x7FF0_0000_0000_0000
"""Exponent bits of a float64; masked with them, a value becomes the power of two below it."""


def _rounded(x: torch.Tensor, precision: PrecisionClass, way: Rounding, generator: torch.Generator) -> torch.Tensor:
    power = (x.view(torch.int64) & _EXPONENT).view(torch.float64)
    unit = power.mul_(2.0 ** -MANTISSA_BITS[precision])
    if (least := LEAST_UNIT.get(precision)) is not None:
        unit.clamp_(min=least)
    units = x / unit
    whole = _whole(units, way, generator)
    # Zero has no unit and stays, and so do values that are not finite, or would become zero: zero is outside the domain
    # of many functions.
    held = torch.isfinite(units) & (units.abs() >= 0.5) & (whole.abs() >= 0.5)
    return torch.where(held, whole * unit, x)


def _whole(units: torch.Tensor, way: Rounding, generator: torch.Generator) -> torch.Tensor:
    """Return whole numbers of units."""
    if way in (Rounding.JITTER, Rounding.OTHER_JITTER):
        shift = torch.rand(units.shape, dtype=torch.float64, device=units.device, generator=generator).sub_(0.5)
        return shift.add_(units).clamp_(units.floor(), units.ceil())
    return units.trunc() if way is Rounding.CUT else units.round()


def _round_blocks(
    tensor: torch.Tensor, result: torch.Tensor, form: BlockFormat, way: Rounding, generator: torch.Generator
) -> None:
    """Round to a format with a scale for each block.

    Small values of a block become zero. Blocks with a value that is not finite stay unchanged.
    """
    last = tensor.shape[-1] if tensor.dim() else 1
    rows, into = tensor.reshape(-1, last), result.view(-1, last)
    finite = [torch.where(p.isfinite(), p, 0).abs().amax() for _, (p,) in slices(_STEP, tensor) if p is not None]
    largest = float(torch.stack(finite).amax())
    step = max(1, _STEP // max(last, form.block))
    for start in range(0, len(rows), step):
        blocks = form.blocks(rows[start : start + step].double())
        unit, top = form.grid(blocks, largest)
        whole = _whole(torch.where(unit > 0, blocks / unit, 0.0), way, generator)
        moved = torch.minimum(torch.maximum(whole * unit, -top), top)
        moved = torch.where(blocks.isfinite().all(dim=1, keepdim=True), moved, blocks)
        into[start : start + step] = moved.view(-1, last + -last % form.block)[:, :last].to(tensor.dtype)

"""Number formats whose values share a scale in blocks of a row.

Trusted side; pure functions in float64. They say how far apart the numbers of a format lie around each value, so that
`rounding.py` can round to them. Sources of the definitions:

* mxfp8 and mxfp4: "OCP Microscaling Formats (MX) Specification", version 1.0 (2023), sections 5 and 6. 32 values share
  a power of two; larger values saturate.
* nvfp4: NVIDIA, "Introducing NVFP4" (2025). 16 values share a scale in e4m3, and a tensor shares one in float32.
* int8 and int4: symmetric numbers of which a group of 128 shares its largest magnitude as scale (E. Frantar et al.,
  "GPTQ", arXiv:2210.17323; J. Lin et al., "AWQ", arXiv:2306.00978).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from harness.core.choices import PrecisionClass


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFormat:
    """A format with a scale for each block.

    Attributes:
        block: Number of neighbouring values in a row that share a scale.
        grid: From blocks, shape (blocks, `block`), and the largest magnitude of the whole tensor to the distance of the
            numbers around each value, in that shape, and each block's largest number, shape (blocks, 1).
    """

    block: int
    grid: Callable[[torch.Tensor, float], tuple[torch.Tensor, torch.Tensor]]

    def blocks(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of a matrix in blocks, the last block of a row filled with zeros."""
        missing = -rows.shape[1] % self.block
        return torch.nn.functional.pad(rows, (0, missing)).view(-1, self.block)


def _power(x: torch.Tensor) -> torch.Tensor:
    """Return the power of two at or below each magnitude; 0 for 0."""
    _, exponent = torch.frexp(x)
    return torch.where(x == 0, 0.0, torch.ldexp(torch.ones_like(x), exponent - 1))


def _largest(blocks: torch.Tensor) -> torch.Tensor:
    return blocks.abs().amax(dim=1, keepdim=True)


def _whole_numbers(top: int) -> Callable[[torch.Tensor, float], tuple[torch.Tensor, torch.Tensor]]:
    """Return the grid of whole numbers from -`top` to `top` times a scale."""

    def grid(blocks: torch.Tensor, _: float) -> tuple[torch.Tensor, torch.Tensor]:
        largest = _largest(blocks)
        return (largest / top).expand(blocks.shape), largest

    return grid


def _floating(
    mantissa: int, least: float, top: float, scale: Callable[[torch.Tensor, float], torch.Tensor]
) -> Callable[[torch.Tensor, float], tuple[torch.Tensor, torch.Tensor]]:
    """Return the grid of small floating-point numbers times a scale.

    Args:
        mantissa: Explicit bits.
        least: Smallest normal number.
        top: Largest number.
        scale: From blocks and the tensor's largest magnitude to each block's scale.
    """

    def grid(blocks: torch.Tensor, largest: float) -> tuple[torch.Tensor, torch.Tensor]:
        scales = scale(blocks, largest)
        power = _power(torch.where(scales > 0, blocks / scales, 0.0))
        power = power.clamp(least, 2.0 ** math.floor(math.log2(top)))  # larger values saturate
        return power * 2.0**-mantissa * scales, top * scales

    return grid


def _shared_exponent(top: float) -> Callable[[torch.Tensor, float], torch.Tensor]:
    """Return the scale of MX.

    Its exponent is the largest magnitude's, less that of the element's largest number.
    """
    emax = math.floor(math.log2(top))
    return lambda blocks, _: _power(_largest(blocks)) * 2.0**-emax


def _nvfp4_scale(blocks: torch.Tensor, largest: float) -> torch.Tensor:
    of_tensor = largest / (6.0 * 448.0) or 1.0
    return (_largest(blocks) / 6.0 / of_tensor).to(torch.float8_e4m3fn).double() * of_tensor


BLOCK_FORMATS: Mapping[PrecisionClass, BlockFormat] = {
    PrecisionClass.INT8: BlockFormat(block=128, grid=_whole_numbers(127)),
    PrecisionClass.MXFP8: BlockFormat(block=32, grid=_floating(3, 2.0**-6, 448.0, _shared_exponent(448.0))),
    PrecisionClass.NVFP4: BlockFormat(block=16, grid=_floating(1, 1.0, 6.0, _nvfp4_scale)),
    PrecisionClass.INT4: BlockFormat(block=128, grid=_whole_numbers(7)),
    PrecisionClass.MXFP4: BlockFormat(block=32, grid=_floating(1, 1.0, 6.0, _shared_exponent(6.0))),
}
"""Formats by class. Blocks lie along the last dimension."""

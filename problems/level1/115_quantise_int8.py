"""Quantises groups of values to eight bits with a power of two as scale."""

import torch
import torch.nn as nn

rows = 8192
groups = 64
group_size = 128


class Model(nn.Module):
    """Scales every group so that it fits eight bits, and rounds to the nearest whole number.

    With a power of two as scale the division is exact, so that rounding has one right answer.
    """

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: (rows, groups, group_size). Returns int8 of the same shape, and scales (rows, groups, 1)."""
        largest = x.abs().amax(dim=2, keepdim=True)
        mantissa, _ = torch.frexp(largest)
        scale = largest / mantissa / 128
        return torch.round(x / scale).clamp(-127, 127).to(torch.int8), scale


def get_inputs():
    # Groups of different size, so that many scales occur.
    size = torch.exp2(8 * torch.rand(rows, groups, 1) - 4)
    return [torch.randn(rows, groups, group_size) * size]


def get_init_inputs():
    return []

"""Turns eight-bit numbers back into values, with a scale and a zero point a group."""

import torch
import torch.nn as nn

rows = 16384
groups = 64
group_size = 128


class Model(nn.Module):
    """Takes (q - zero) * scale."""

    def forward(self, q: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
        """q: (rows, groups, group_size) of int8; scale and zero: (rows, groups, 1). Returns the shape of q."""
        return (q.to(scale.dtype) - zero) * scale


def get_inputs():
    q = torch.randint(-128, 128, (rows, groups, group_size), dtype=torch.int8)
    return [q, 0.01 + 0.1 * torch.rand(rows, groups, 1), torch.randn(rows, groups, 1) * 16]


def get_init_inputs():
    return []

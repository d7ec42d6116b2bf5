"""Rows scaled to a length just below one."""

import torch
import torch.nn as nn

rows = 16384
columns = 4096


class Model(nn.Module):
    """Divides each row by the root of one more than its squared length: a row of zeros stays."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (rows, columns). Returns the same shape."""
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1.0)


def get_inputs():
    return [torch.randn(rows, columns) * (0.5 + torch.rand(rows, 1))]


def get_init_inputs():
    return []

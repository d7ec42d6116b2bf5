"""Rows divided by the mean of their magnitudes."""

import torch
import torch.nn as nn

batch_size = 16384
dim = 8192
dtype = "float32"


class Model(nn.Module):
    """Divides every row by the mean of the absolute values in it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, dim). Returns the same shape."""
        return x / torch.mean(torch.abs(x), dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(batch_size, dim, dtype=getattr(torch, dtype))]


def get_init_inputs():
    return []

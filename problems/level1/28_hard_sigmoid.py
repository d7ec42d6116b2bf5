"""Logistic function by three straight lines."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16384
dim = 8192
dtype = "float32"


class Model(nn.Module):
    """Takes (x + 3) / 6, kept between 0 and 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: any shape. Returns the same shape."""
        return F.hardsigmoid(x)


def get_inputs():
    return [torch.randn(batch_size, dim, dtype=getattr(torch, dtype)) * 3]


def get_init_inputs():
    return []

"""Leaky rectifier: negative values are scaled down."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16384
dim = 8192
negative_slope = 0.1
dtype = "float32"


class Model(nn.Module):
    """Takes x where it is positive and a part of it elsewhere."""

    def __init__(self, negative_slope: float) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: any shape. Returns the same shape."""
        return F.leaky_relu(x, negative_slope=self.negative_slope)


def get_inputs():
    return [torch.randn(batch_size, dim, dtype=getattr(torch, dtype))]


def get_init_inputs():
    return [negative_slope]

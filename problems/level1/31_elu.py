"""Exponential linear unit: negative values approach a bound."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16384
dim = 8192
alpha = 1.5
dtype = "float32"


class Model(nn.Module):
    """Takes x where it is positive and alpha * (exp(x) - 1) elsewhere."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: any shape. Returns the same shape."""
        return F.elu(x, alpha=self.alpha)


def get_inputs():
    return [torch.randn(batch_size, dim, dtype=getattr(torch, dtype))]


def get_init_inputs():
    return [alpha]

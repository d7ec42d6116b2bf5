"""Bias, GELU, a scale per channel and a residual: four element-wise steps in one."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16384
features = 4096
dtype = "float32"


class Model(nn.Module):
    """Takes residual + scale * gelu(x + bias)."""

    def __init__(self, features: int, dtype: str) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features, dtype=getattr(torch, dtype)))
        self.scale = nn.Parameter(torch.randn(features, dtype=getattr(torch, dtype)))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x and residual: (batch_size, features). Returns the same shape."""
        return residual + self.scale * F.gelu(x + self.bias)


def get_inputs():
    return [
        torch.randn(batch_size, features, dtype=getattr(torch, dtype)),
        torch.randn(batch_size, features, dtype=getattr(torch, dtype)),
    ]


def get_init_inputs():
    return [features, dtype]

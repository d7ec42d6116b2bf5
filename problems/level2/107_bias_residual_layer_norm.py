"""Bias, residual addition and layer normalisation after a projection."""

import torch
import torch.nn as nn

batch_size = 16384
features = 2048


class Model(nn.Module):
    """Takes layer_norm(x + bias + residual)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))
        self.norm = nn.LayerNorm(features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x and residual: (batch_size, features). Returns the same shape."""
        return self.norm(x + self.bias + residual)


def get_inputs():
    return [torch.randn(batch_size, features), torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]

"""Adds a layer's result to the residual stream and normalises the sum; both are needed later."""

import torch
import torch.nn as nn

batch_size = 8192
features = 4096
epsilon = 1e-5
dtype = "float32"


class Model(nn.Module):
    """Root-mean-square normalisation with a weight per feature, after an addition."""

    def __init__(self, features: int, epsilon: float, dtype: str) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.randn(features, dtype=getattr(torch, dtype)))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x and residual: (batch_size, features). Returns the normalised sum and the sum."""
        total = x + residual
        size = torch.rsqrt(total.square().mean(dim=1, keepdim=True) + self.epsilon)
        return total * size * self.weight, total


def get_inputs():
    # Rows of different size, from where epsilon decides to where it does not count.
    size = 10 ** (-3 * torch.rand(batch_size, 1))
    x, residual = (torch.randn(batch_size, features) * size for _ in range(2))
    return [x.to(getattr(torch, dtype)), residual.to(getattr(torch, dtype))]


def get_init_inputs():
    return [features, epsilon, dtype]

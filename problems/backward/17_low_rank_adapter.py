"""A frozen linear layer with a trained adapter of low rank."""

import torch
import torch.nn as nn

rows = 8192
features = 2048
rank = 16


class Model(nn.Module):
    """Adds the product of two thin matrices to a weight that has no gradient."""

    def __init__(self, num_features: int, rank: int) -> None:
        super().__init__()
        self.register_buffer("frozen", torch.randn(num_features, num_features) / num_features**0.5)
        self.down = nn.Parameter(torch.randn(rank, num_features) / num_features**0.5)
        self.up = nn.Parameter(torch.randn(num_features, rank) / rank**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (rows, num_features). Returns the same shape."""
        return x @ self.frozen.T + 2.0 * (x @ self.down.T) @ self.up.T


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features, rank]

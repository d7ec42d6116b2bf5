"""A linear layer with as many outputs as inputs."""

import torch
import torch.nn as nn

rows = 4096
features = 4096


class Model(nn.Module):
    """Its backward has two matrix products and a sum over the rows."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (rows, num_features). Returns the same shape."""
        return self.linear(x)


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features]

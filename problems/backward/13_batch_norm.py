"""Batch norm in training mode."""

import torch
import torch.nn as nn

batch_size = 64
features = 64
height = 128
width = 128


class Model(nn.Module):
    """Uses the statistics of the batch, which have gradients, and updates the running ones."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(num_features)
        nn.init.uniform_(self.bn.weight, 0.5, 1.5)
        nn.init.normal_(self.bn.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, num_features, height, width). Returns the same shape."""
        return self.bn(x)


def get_inputs():
    spread = 0.5 + torch.rand(batch_size, features, 1, 1)
    return [torch.randn(batch_size, features, height, width) * spread + torch.randn(batch_size, features, 1, 1)]


def get_init_inputs():
    return [features]

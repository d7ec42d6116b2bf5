"""Batch normalisation in training mode: uses the statistics of the batch and updates the running ones."""

import torch
import torch.nn as nn

batch_size = 64
features = 64
dim1 = 512
dim2 = 512


class Model(nn.Module):
    """Normalises each feature over the batch and both image dimensions."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(num_features=num_features)
        nn.init.uniform_(self.bn.weight, 0.5, 1.5)
        nn.init.normal_(self.bn.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, num_features, dim1, dim2). Returns the same shape."""
        return self.bn(x)


def get_inputs():
    # Every channel has a mean and a spread of its own.
    spread = 0.5 + torch.rand(batch_size, features, 1, 1)
    return [torch.randn(batch_size, features, dim1, dim2) * spread + torch.randn(batch_size, features, 1, 1)]


def get_init_inputs():
    return [features]

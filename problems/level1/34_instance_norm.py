"""Instance normalisation: every channel of every sample by its own mean and variance."""

import torch
import torch.nn as nn

batch_size = 32
features = 64
dim1 = 256
dim2 = 256


class Model(nn.Module):
    """Normalises each plane of an image."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.inorm = nn.InstanceNorm2d(num_features=num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, num_features, dim1, dim2). Returns the same shape."""
        return self.inorm(x)


def get_inputs():
    # Every plane has a mean and a spread of its own.
    spread = 0.5 + torch.rand(batch_size, features, 1, 1)
    return [torch.randn(batch_size, features, dim1, dim2) * spread + torch.randn(batch_size, features, 1, 1)]


def get_init_inputs():
    return [features]

"""Group normalisation: groups of channels of each sample share mean and variance."""

import torch
import torch.nn as nn

batch_size = 32
features = 64
num_groups = 8
dim1 = 256
dim2 = 256


class Model(nn.Module):
    """Normalises each group of channels, then applies a weight and a bias per channel."""

    def __init__(self, num_features: int, num_groups: int) -> None:
        super().__init__()
        self.gn = nn.GroupNorm(num_groups=num_groups, num_channels=num_features)
        nn.init.uniform_(self.gn.weight, 0.5, 1.5)
        nn.init.normal_(self.gn.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, num_features, dim1, dim2). Returns the same shape."""
        return self.gn(x)


def get_inputs():
    # Every channel has a mean and a spread of its own.
    spread = 0.5 + torch.rand(batch_size, features, 1, 1)
    return [torch.randn(batch_size, features, dim1, dim2) * spread + torch.randn(batch_size, features, 1, 1)]


def get_init_inputs():
    return [features, num_groups]

"""Layer norm over the last dimension."""

import torch
import torch.nn as nn

rows = 16384
features = 4096


class Model(nn.Module):
    """The gradients of weight and bias are sums over all rows."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(num_features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (rows, num_features). Returns the same shape."""
        return self.norm(x)


def get_inputs():
    # Every row has a mean and a spread of its own.
    return [torch.randn(rows, features) * (0.5 + torch.rand(rows, 1)) + torch.randn(rows, 1)]


def get_init_inputs():
    return [features]

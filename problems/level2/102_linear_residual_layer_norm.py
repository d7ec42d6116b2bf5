"""Linear layer added to its own input, then layer normalisation."""

import torch
import torch.nn as nn

batch_size = 8192
features = 2048


class Model(nn.Module):
    """Takes layer_norm(x + x W^T)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, features, bias=False)
        self.norm = nn.LayerNorm(features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, features). Returns the same shape."""
        return self.norm(x + self.linear(x))


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]

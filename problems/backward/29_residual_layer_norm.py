"""A residual sum and its layer norm: two outputs with a gradient each."""

import torch
import torch.nn as nn

rows = 16384
features = 2048


class Model(nn.Module):
    """Returns the normalised sum and the sum, as a transformer's block needs both."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(num_features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual: (rows, num_features). Returns two tensors of the same shape."""
        both = x + residual
        return self.norm(both), both


def get_inputs():
    return [torch.randn(rows, features), torch.randn(rows, features) * 2 + 1]


def get_init_inputs():
    return [features]

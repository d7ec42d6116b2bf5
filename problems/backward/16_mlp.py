"""Two linear layers with a GELU between."""

import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 4096
features = 1024
hidden = 4096


class Model(nn.Module):
    """The feed-forward part of a transformer's block."""

    def __init__(self, num_features: int, num_hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(num_features, num_hidden)
        self.down = nn.Linear(num_hidden, num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (rows, num_features). Returns the same shape."""
        return self.down(F.gelu(self.up(x)))


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features, hidden]

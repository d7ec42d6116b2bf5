"""One product for both halves of a gated unit, the gate through GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4096
in_features = 1024
hidden_features = 2048


class Model(nn.Module):
    """Takes gelu(first half) * second half of x W^T + b."""

    def __init__(self, in_features: int, hidden_features: int) -> None:
        super().__init__()
        self.project = nn.Linear(in_features, 2 * hidden_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_features). Returns (batch_size, hidden_features)."""
        gate, up = self.project(x).chunk(2, dim=1)
        return F.gelu(gate) * up


def get_inputs():
    return [torch.randn(batch_size, in_features) * 2]


def get_init_inputs():
    return [in_features, hidden_features]

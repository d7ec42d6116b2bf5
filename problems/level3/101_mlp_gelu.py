"""Perceptron with two hidden layers and GELU between."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 2048
in_features = 1024
hidden_features = 4096
out_features = 1024
dtype = "float32"


class Model(nn.Module):
    """Three linear layers with biases."""

    def __init__(self, in_features: int, hidden_features: int, out_features: int, dtype: str) -> None:
        super().__init__()
        kind = getattr(torch, dtype)
        self.first = nn.Linear(in_features, hidden_features, dtype=kind)
        self.second = nn.Linear(hidden_features, hidden_features, dtype=kind)
        self.third = nn.Linear(hidden_features, out_features, dtype=kind)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_features). Returns (batch_size, out_features)."""
        x = F.gelu(self.first(x))
        x = F.gelu(self.second(x))
        return self.third(x)


def get_inputs():
    return [torch.randn(batch_size, in_features, dtype=getattr(torch, dtype)) * 4]


def get_init_inputs():
    return [in_features, hidden_features, out_features, dtype]

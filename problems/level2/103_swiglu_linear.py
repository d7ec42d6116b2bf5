"""Gated linear unit: two products of the same rows, one through swish, multiplied."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4096
in_features = 1024
hidden_features = 2816
dtype = "float32"


class Model(nn.Module):
    """Takes silu(x G^T) * (x U^T), as the feed-forward layers of Llama do."""

    def __init__(self, in_features: int, hidden_features: int, dtype: str) -> None:
        super().__init__()
        self.gate = nn.Linear(in_features, hidden_features, bias=False, dtype=getattr(torch, dtype))
        self.up = nn.Linear(in_features, hidden_features, bias=False, dtype=getattr(torch, dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_features). Returns (batch_size, hidden_features)."""
        return F.silu(self.gate(x)) * self.up(x)


def get_inputs():
    return [torch.randn(batch_size, in_features, dtype=getattr(torch, dtype)) * 2]


def get_init_inputs():
    return [in_features, hidden_features, dtype]

"""Linear layer with a bias, then GELU: an epilogue for the product."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4096
in_features = 2048
out_features = 4096
dtype = "float32"


class Model(nn.Module):
    """Takes gelu(x W^T + b)."""

    def __init__(self, in_features: int, out_features: int, dtype: str) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=getattr(torch, dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_features). Returns (batch_size, out_features)."""
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(batch_size, in_features, dtype=getattr(torch, dtype))]


def get_init_inputs():
    return [in_features, out_features, dtype]

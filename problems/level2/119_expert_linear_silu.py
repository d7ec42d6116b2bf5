"""One linear layer an expert, over equal numbers of rows, then swish."""

import torch
import torch.nn as nn
import torch.nn.functional as F

experts = 32
rows = 256
in_features = 1024
out_features = 2048
dtype = "float32"


class Model(nn.Module):
    """Takes silu(x W) with another W for every expert."""

    def __init__(self, experts: int, in_features: int, out_features: int, dtype: str) -> None:
        super().__init__()
        weight = torch.randn(experts, in_features, out_features) / in_features**0.5
        self.weight = nn.Parameter(weight.to(getattr(torch, dtype)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (experts, rows, in_features). Returns (experts, rows, out_features)."""
        return F.silu(torch.bmm(x, self.weight))


def get_inputs():
    return [torch.randn(experts, rows, in_features, dtype=getattr(torch, dtype)) * 2]


def get_init_inputs():
    return [experts, in_features, out_features, dtype]

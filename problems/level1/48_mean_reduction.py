"""Mean over the middle one of three dimensions."""

import torch
import torch.nn as nn

batch_size = 64
dim1 = 2048
dim2 = 2047
reduce_dim = 1
dtype = "float32"


class Model(nn.Module):
    """Averages over one dimension."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, dim1, dim2). Returns (batch_size, dim2) for dimension 1."""
        return torch.mean(x, dim=self.dim)


def get_inputs():
    return [torch.randn(batch_size, dim1, dim2, dtype=getattr(torch, dtype))]


def get_init_inputs():
    return [reduce_dim]

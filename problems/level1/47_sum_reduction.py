"""Sum over the middle one of three dimensions."""

import torch
import torch.nn as nn

batch_size = 128
dim1 = 4096
dim2 = 4095
reduce_dim = 1


class Model(nn.Module):
    """Sums over one dimension and keeps it with the size one."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, dim1, dim2). Returns (batch_size, 1, dim2) for dimension 1."""
        return torch.sum(x, dim=self.dim, keepdim=True)


def get_inputs():
    return [torch.randn(batch_size, dim1, dim2)]


def get_init_inputs():
    return [reduce_dim]

"""Product of a transposed matrix and a vector, y = A^T x: sums run down the columns."""

import torch
import torch.nn as nn

K = 65536
M = 4096
dtype = "float32"


class Model(nn.Module):
    """Multiplies the transpose of a K x M matrix by a vector."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (K, M), B: (K,). Returns (M,)."""
        return torch.matmul(A.T, B)


def get_inputs():
    return [torch.randn(K, M, dtype=getattr(torch, dtype)), torch.randn(K, dtype=getattr(torch, dtype))]


def get_init_inputs():
    return []

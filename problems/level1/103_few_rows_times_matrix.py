"""Product of a few rows with a large transposed matrix, as in generating text: the matrix is read once and decides."""

import torch
import torch.nn as nn

batch_size = 16
K = 8192
N = 16384
dtype = "float32"


class Model(nn.Module):
    """Multiplies a batch of rows by the transpose of a weight matrix."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (batch_size, K), B: (N, K). Returns (batch_size, N)."""
        return torch.matmul(A, B.T)


def get_inputs():
    return [torch.randn(batch_size, K, dtype=getattr(torch, dtype)), torch.randn(N, K, dtype=getattr(torch, dtype))]


def get_init_inputs():
    return []

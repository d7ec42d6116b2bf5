"""Product with both factors transposed, C = A^T B^T."""

import torch
import torch.nn as nn

M = 2048
K = 4096
N = 4096


class Model(nn.Module):
    """Multiplies the transposes of a K x M and an N x K matrix."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (K, M), B: (N, K). Returns (M, N)."""
        return torch.matmul(A.T, B.T)


def get_inputs():
    return [torch.randn(K, M), torch.randn(N, K)]


def get_init_inputs():
    return []

"""Product of two matrices with a short inner dimension, C = A B: the result is far larger than its factors."""

import torch
import torch.nn as nn

M = 16384
N = 16384
K = 48


class Model(nn.Module):
    """Multiplies an M x K by a K x N matrix with K far below M and N."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (M, K), B: (K, N). Returns (M, N)."""
        return torch.matmul(A, B)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []

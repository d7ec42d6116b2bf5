"""Product of two long thin matrices, C = A B: a small result in which every element sums half a million terms."""

import torch
import torch.nn as nn

M = 256
N = 256
K = 524288


class Model(nn.Module):
    """Multiplies an M x K by a K x N matrix with K far above M and N."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (M, K), B: (K, N). Returns (M, N)."""
        return torch.matmul(A, B)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []

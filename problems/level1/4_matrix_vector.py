"""Product of a wide matrix and a column, C = A B: every element of A is used once, so memory decides."""

import torch
import torch.nn as nn

M = 2048
K = 1048576


class Model(nn.Module):
    """Multiplies an M x K matrix by a K x 1 column."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (M, K), B: (K, 1). Returns (M, 1)."""
        return torch.matmul(A, B)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, 1)]


def get_init_inputs():
    return []

"""Product with the first factor transposed, C = A^T B."""

import torch
import torch.nn as nn

M = 2048
K = 8192
N = 4096


class Model(nn.Module):
    """Multiplies the transpose of a K x M matrix by a K x N matrix."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (K, M), B: (K, N). Returns (M, N)."""
        return torch.matmul(A.T, B)


def get_inputs():
    return [torch.randn(K, M), torch.randn(K, N)]


def get_init_inputs():
    return []

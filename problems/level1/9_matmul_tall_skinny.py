"""Product of a tall and a wide matrix, C = A B: few columns on the left, few rows on the right."""

import torch
import torch.nn as nn

M = 20480
N = 32


class Model(nn.Module):
    """Multiplies an M x N by an N x M matrix with M far above N."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (M, N), B: (N, M). Returns (M, M)."""
        return torch.matmul(A, B)


def get_inputs():
    return [torch.randn(M, N), torch.randn(N, M)]


def get_init_inputs():
    return []

"""Product of two rectangular matrices, C = A B."""

import torch
import torch.nn as nn

M = 2048
K = 4096
N = 6144
dtype = "float32"


class Model(nn.Module):
    """Multiplies an M x K matrix by a K x N matrix."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (M, K), B: (K, N). Returns (M, N)."""
        return torch.matmul(A, B)


def get_inputs():
    return [torch.randn(M, K, dtype=getattr(torch, dtype)), torch.randn(K, N, dtype=getattr(torch, dtype))]


def get_init_inputs():
    return []

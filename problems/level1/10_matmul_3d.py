"""Product of a stack of matrices with one matrix."""

import torch
import torch.nn as nn

batch_size = 16
M = 1024
K = 2048
N = 768


class Model(nn.Module):
    """Multiplies every matrix of a stack by the same matrix."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (batch_size, M, K), B: (K, N). Returns (batch_size, M, N)."""
        return torch.matmul(A, B)


def get_inputs():
    return [torch.randn(batch_size, M, K), torch.randn(K, N)]


def get_init_inputs():
    return []

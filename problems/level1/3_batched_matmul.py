"""Products of many pairs of matrices, one a batch entry."""

import torch
import torch.nn as nn

batch_size = 96
M = 512
K = 1024
N = 768
dtype = "float32"


class Model(nn.Module):
    """Multiplies two stacks of matrices, pair by pair."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (batch_size, M, K), B: (batch_size, K, N). Returns (batch_size, M, N)."""
        return torch.bmm(A, B)


def get_inputs():
    return [
        torch.randn(batch_size, M, K, dtype=getattr(torch, dtype)),
        torch.randn(batch_size, K, N, dtype=getattr(torch, dtype)),
    ]


def get_init_inputs():
    return []

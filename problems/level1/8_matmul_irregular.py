"""Product of two matrices whose sizes fit no tile, C = A B."""

import torch
import torch.nn as nn

M = 4133
K = 2971
N = 3517


class Model(nn.Module):
    """Multiplies two matrices of sizes that are multiples of nothing."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (M, K), B: (K, N). Returns (M, N)."""
        return torch.matmul(A, B)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []

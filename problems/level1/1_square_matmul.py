"""Product of two square matrices, C = A B."""

import torch
import torch.nn as nn

N = 4096


class Model(nn.Module):
    """Multiplies two N x N matrices."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A and B: (N, N). Returns (N, N)."""
        return torch.matmul(A, B)


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]


def get_init_inputs():
    return []

"""Product of two lower triangular matrices, C = A B."""

import torch
import torch.nn as nn

N = 4096


class Model(nn.Module):
    """Multiplies two lower triangular matrices; the product is one too."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A and B: (N, N), zero above the diagonal. Returns (N, N), zero above the diagonal."""
        return torch.matmul(A, B)


def get_inputs():
    return [torch.tril(torch.randn(N, N)), torch.tril(torch.randn(N, N))]


def get_init_inputs():
    return []

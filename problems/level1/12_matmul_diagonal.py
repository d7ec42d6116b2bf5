"""Product of a diagonal matrix, given by its diagonal, with a matrix: a row scaling that is written as a product."""

import torch
import torch.nn as nn

N = 4096
M = 4096


class Model(nn.Module):
    """Multiplies the diagonal matrix of a vector by a matrix."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (N,), B: (N, M). Returns (N, M)."""
        return torch.diag(A) @ B


def get_inputs():
    return [torch.randn(N), torch.randn(N, M)]


def get_init_inputs():
    return []

"""Product of two symmetric matrices, C = A B."""

import torch
import torch.nn as nn

N = 4096


class Model(nn.Module):
    """Multiplies two symmetric matrices; each could be read from one triangle."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A and B: (N, N), symmetric. Returns (N, N), which is not symmetric."""
        return torch.matmul(A, B)


def get_inputs():
    A = torch.randn(N, N)
    B = torch.randn(N, N)
    return [A + A.T, B + B.T]


def get_init_inputs():
    return []

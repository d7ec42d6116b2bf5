"""Product of a four-dimensional tensor with a matrix over the last dimension."""

import torch
import torch.nn as nn

b = 4
i = 128
j = 256
l = 256
k = 768


class Model(nn.Module):
    """Contracts the last dimension of a four-dimensional tensor with a matrix."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (b, i, j, l), B: (l, k). Returns (b, i, j, k)."""
        return torch.einsum("bijl,lk->bijk", A, B)


def get_inputs():
    return [torch.randn(b, i, j, l), torch.randn(l, k)]


def get_init_inputs():
    return []

"""Products of many matrices with a vector each."""

import torch
import torch.nn as nn

batch_size = 256
M = 1024
K = 768


class Model(nn.Module):
    """Multiplies every matrix of a stack by its own vector."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """A: (batch_size, M, K), B: (batch_size, K). Returns (batch_size, M)."""
        return torch.bmm(A, B.unsqueeze(2)).squeeze(2)


def get_inputs():
    return [torch.randn(batch_size, M, K), torch.randn(batch_size, K)]


def get_init_inputs():
    return []

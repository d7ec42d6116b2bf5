"""Logarithm of the softmax of long rows."""

import torch
import torch.nn as nn

batch_size = 4096
dim = 32768
dtype = "float32"


class Model(nn.Module):
    """Takes log(exp(x) / sum(exp(x))) along every row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, dim). Returns the same shape."""
        return torch.log_softmax(x, dim=1)


def get_inputs():
    return [torch.randn(batch_size, dim, dtype=getattr(torch, dtype)) * 3]


def get_init_inputs():
    return []

"""Transposes every matrix of a stack in memory: nothing is calculated, coalescing decides."""

import torch
import torch.nn as nn

batch_size = 16
rows = 4096
columns = 2048
dtype = "float32"


class Model(nn.Module):
    """Writes the transposes of a stack of matrices."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, rows, columns). Returns (batch_size, columns, rows), contiguous."""
        return x.transpose(1, 2).contiguous()


def get_inputs():
    return [torch.randn(batch_size, rows, columns, dtype=getattr(torch, dtype))]


def get_init_inputs():
    return []

"""SwiGLU: one half gates the other."""

import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 8192
columns = 8192


class Model(nn.Module):
    """Multiplies `values` by SiLU of `gates`."""

    def forward(self, gates: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """gates, values: (rows, columns). Returns the same shape."""
        return F.silu(gates) * values


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs():
    return []

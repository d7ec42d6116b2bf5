"""Gated linear unit on halves of a packed row: silu(first) * second."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16384
features = 4096
dtype = "float32"


class Model(nn.Module):
    """Splits every row in two and multiplies one half by the swish of the other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, 2 * features). Returns (batch_size, features)."""
        gate, up = x.chunk(2, dim=1)
        return F.silu(gate) * up


def get_inputs():
    return [torch.randn(batch_size, 2 * features, dtype=getattr(torch, dtype)) * 2]


def get_init_inputs():
    return []

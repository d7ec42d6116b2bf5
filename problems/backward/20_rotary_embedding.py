"""Rotary position embedding."""

import torch
import torch.nn as nn

batch_size = 8
length = 2048
heads = 32
dim = 128


class Model(nn.Module):
    """Rotates pairs of features by angles that grow with the position; the backward rotates back."""

    def __init__(self, max_length: int, dim: int) -> None:
        super().__init__()
        angles = torch.arange(max_length)[:, None] * 10000.0 ** (-torch.arange(0, dim, 2) / dim)
        self.register_buffer("cos", angles.cos()[:, None])
        self.register_buffer("sin", angles.sin()[:, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, length, heads, dim). Returns the same shape."""
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * self.cos - b * self.sin, b * self.cos + a * self.sin], dim=-1)


def get_inputs():
    return [torch.randn(batch_size, length, heads, dim)]


def get_init_inputs():
    return [length, dim]

"""Rotary position embedding of queries; neighbouring places of a head are paired."""

import torch
import torch.nn as nn

batch_size = 8
length = 2048
heads = 32
head_dim = 128


class Model(nn.Module):
    """Rotates every pair of neighbours of a head by the angle of its position and place."""

    def forward(self, query: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """query: (batch_size, heads, length, head_dim); cosine and sine: (length, head_dim / 2). Returns as query."""
        even, odd = query[..., 0::2], query[..., 1::2]
        return torch.stack((even * cosine - odd * sine, odd * cosine + even * sine), dim=-1).flatten(-2)


def get_inputs():
    # Angles as a table of cosines and sines, so that their precision is not part of the problem.
    angle = torch.rand(length, head_dim // 2) * 6.283185

    return [torch.randn(batch_size, heads, length, head_dim), angle.cos(), angle.sin()]


def get_init_inputs():
    return []

"""Causal attention, with gradients of queries, keys and values."""

import torch
import torch.nn as nn

batch_size = 8
heads = 16
length = 1024
dim = 64


class Model(nn.Module):
    """Each position attends to itself and to earlier ones."""

    def __init__(self, max_length: int) -> None:
        super().__init__()
        later = torch.ones(max_length, max_length, dtype=torch.bool).triu(1)
        self.register_buffer("later", later)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q, k, v: (batch_size, heads, length, dim). Returns the same shape."""
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return torch.softmax(scores.masked_fill(self.later, float("-inf")), dim=-1) @ v


def get_inputs():
    return [torch.randn(batch_size, heads, length, dim) for _ in range(3)]


def get_init_inputs():
    return [length]

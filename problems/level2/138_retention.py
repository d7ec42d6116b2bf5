"""Attention with a decay by distance in the place of softmax, never looking ahead."""

import torch
import torch.nn as nn

batch_size = 4
heads = 16
length = 1024
head_dim = 64


class Model(nn.Module):
    """Takes (Q K^T * D) V with D[i, j] = decay^(i - j) for j <= i and 0 elsewhere (Sun et al., 2023)."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
        """query, key, value: (batch_size, heads, length, head_dim), decay: (heads,). Returns the shape of value."""
        places = torch.arange(query.shape[2], device=query.device)
        distance = places[:, None] - places[None, :]
        weight = torch.where(distance >= 0, decay[:, None, None] ** distance, 0.0)
        return (query @ key.transpose(-2, -1) * weight) @ value


def get_inputs():
    shape = (batch_size, heads, length, head_dim)
    return [torch.randn(shape), torch.randn(shape), torch.randn(shape), 0.8 + 0.19 * torch.rand(heads)]


def get_init_inputs():
    return []

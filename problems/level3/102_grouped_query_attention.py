"""Causal attention in which several query heads share one head of keys and values."""

import torch
import torch.nn as nn

batch_size = 4
length = 1024
features = 1024
heads = 16
groups = 4


class Model(nn.Module):
    """Projections, softmax(Q K^T / sqrt(d)) V without the future, and a projection back."""

    def __init__(self, features: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads = heads
        self.groups = groups
        narrow = features // heads * groups
        self.query = nn.Linear(features, features, bias=False)
        self.key = nn.Linear(features, narrow, bias=False)
        self.value = nn.Linear(features, narrow, bias=False)
        self.out = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, length, features). Returns the same shape."""
        batch, length, features = x.shape
        query = self.query(x).view(batch, length, self.heads, -1).transpose(1, 2)
        key = self.key(x).view(batch, length, self.groups, -1).transpose(1, 2)
        value = self.value(x).view(batch, length, self.groups, -1).transpose(1, 2)
        shared = self.heads // self.groups
        key, value = key.repeat_interleave(shared, dim=1), value.repeat_interleave(shared, dim=1)
        places = torch.arange(length, device=x.device)
        future = places[None, :] > places[:, None]
        scores = (query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5).masked_fill(future, float("-inf"))
        mixed = torch.softmax(scores, dim=-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, features))


def get_inputs():
    return [torch.randn(batch_size, length, features) * 2]


def get_init_inputs():
    return [features, heads, groups]

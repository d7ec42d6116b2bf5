"""Causal attention of queries over the last few keys only, with rotary position embedding."""

import torch
import torch.nn as nn

batch_size = 2
length = 2048
heads = 8
head_dim = 64
window = 256


class Model(nn.Module):
    """One product for queries, keys and values, a rotation by place, a band of scores, a projection back."""

    def __init__(self, heads: int, head_dim: int, window: int) -> None:
        super().__init__()
        self.heads = heads
        self.window = window
        self.qkv = nn.Linear(heads * head_dim, 3 * heads * head_dim, bias=False)
        self.out = nn.Linear(heads * head_dim, heads * head_dim)

    def rotate(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, length, heads * head_dim); cosine and sine: (length, head_dim / 2). Returns as x."""
        batch, length, features = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key = self.rotate(qkv[0], cosine, sine), self.rotate(qkv[1], cosine, sine)
        places = torch.arange(length, device=x.device)
        behind = places[:, None] - places[None, :]
        hidden = (behind < 0) | (behind >= self.window)
        scores = (query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5).masked_fill(hidden, float("-inf"))
        mixed = torch.softmax(scores, dim=-1) @ qkv[2]
        return self.out(mixed.transpose(1, 2).reshape(batch, length, features))


def get_inputs():
    angle = torch.rand(length, head_dim // 2) * 6.283185
    return [3 * torch.randn(batch_size, length, heads * head_dim), angle.cos(), angle.sin()]


def get_init_inputs():
    return [heads, head_dim, window]

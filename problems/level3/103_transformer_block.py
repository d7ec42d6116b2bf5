"""Decoder block: normalisation, causal attention, normalisation, gated feed-forward layer, both with residuals."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 2
length = 1024
features = 1024
heads = 16
hidden_features = 2816
epsilon = 1e-5


class RMSNorm(nn.Module):
    """Divides by the root mean square and multiplies by a weight."""

    def __init__(self, features: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(0.5 + torch.rand(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.epsilon) * self.weight


class Model(nn.Module):
    """A block of a language model of Llama's kind, without position embedding."""

    def __init__(self, features: int, heads: int, hidden_features: int, epsilon: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = RMSNorm(features, epsilon)
        self.norm2 = RMSNorm(features, epsilon)
        self.qkv = nn.Linear(features, 3 * features, bias=False)
        self.out = nn.Linear(features, features, bias=False)
        self.gate = nn.Linear(features, hidden_features, bias=False)
        self.up = nn.Linear(features, hidden_features, bias=False)
        self.down = nn.Linear(hidden_features, features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, length, features). Returns the same shape."""
        batch, length, features = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        places = torch.arange(length, device=x.device)
        future = places[None, :] > places[:, None]
        scores = (query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5).masked_fill(future, float("-inf"))
        mixed = (torch.softmax(scores, dim=-1) @ value).transpose(1, 2).reshape(batch, length, features)
        x = x + self.out(mixed)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def get_inputs():
    # Tokens of different size, from where epsilon decides to where it does not count.
    return [torch.randn(batch_size, length, features) * 10 ** (-3 * torch.rand(batch_size, length, 1))]


def get_init_inputs():
    return [features, heads, hidden_features, epsilon]

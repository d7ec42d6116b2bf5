"""Vectors of tokens and of their places added, then layer normalisation."""

import torch
import torch.nn as nn

batch_size = 32
length = 1024
vocabulary = 30522
features = 768


class Model(nn.Module):
    """The first layer of many language models."""

    def __init__(self, vocabulary: int, length: int, features: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, features)
        self.position = nn.Embedding(length, features)
        self.norm = nn.LayerNorm(features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: (batch_size, length) of int64. Returns (batch_size, length, features)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.norm(self.token(tokens) + self.position(places))


def get_inputs():
    return [torch.randint(0, vocabulary, (batch_size, length))]


def get_init_inputs():
    return [vocabulary, length, features]

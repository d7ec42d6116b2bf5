"""Rows of a table by index."""

import torch
import torch.nn as nn

batch_size = 64
length = 2048
vocabulary = 50257
dim = 768


class Model(nn.Module):
    """Looks the vectors of tokens up."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: (batch_size, length) of int64. Returns (batch_size, length, dim)."""
        return self.embedding(tokens)


def get_inputs():
    return [torch.randint(0, vocabulary, (batch_size, length))]


def get_init_inputs():
    return [vocabulary, dim]

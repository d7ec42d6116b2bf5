"""A table of vectors, looked up by tokens."""

import torch
import torch.nn as nn
import torch.nn.functional as F

vocabulary = 32768
dim = 1024
tokens = 65536


class Model(nn.Module):
    """The gradient of a row is the sum over all tokens that name it."""

    def __init__(self, num_rows: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_rows, dim))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: (tokens,) integers. Returns (tokens, dim)."""
        return F.embedding(tokens, self.weight) * 8.0


def get_inputs():
    # Some tokens are frequent: squares of uniform numbers.
    return [(torch.rand(tokens).square() * vocabulary).long().clamp(max=vocabulary - 1)]


def get_init_inputs():
    return [vocabulary, dim]

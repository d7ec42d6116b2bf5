"""Scores over a large vocabulary by a product, and the loss of every token: the scores need not be kept."""

import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 2048
features = 1024
vocabulary = 32000


class Model(nn.Module):
    """Cross-entropy of x W^T, one loss a token."""

    def __init__(self, features: int, vocabulary: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, vocabulary, bias=False)

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """x: (tokens, features), targets: (tokens,) of int64. Returns (tokens,)."""
        return F.cross_entropy(self.head(x), targets, reduction="none")


def get_inputs():
    # Tokens of different size have losses of different size.
    size = 1 + 5 * torch.rand(tokens, 1)
    return [torch.randn(tokens, features) * size, torch.randint(0, vocabulary, (tokens,))]


def get_init_inputs():
    return [features, vocabulary]

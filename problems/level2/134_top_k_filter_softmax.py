"""Probabilities of a row's largest scores; all others become zero."""

import torch
import torch.nn as nn

batch_size = 256
vocabulary = 32000
k = 50
temperature = 0.7


class Model(nn.Module):
    """Softmax of scores / temperature over the k largest of a row, as before drawing a token."""

    def __init__(self, k: int, temperature: float) -> None:
        super().__init__()
        self.k = k
        self.temperature = temperature

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        """scores: (batch_size, vocabulary). Returns the same shape; k values of a row are not zero."""
        smallest = torch.topk(scores, self.k, dim=1).values[:, -1:]
        return torch.softmax((scores / self.temperature).masked_fill(scores < smallest, float("-inf")), dim=1)


def get_inputs():
    # A coarse random value plus a fine step that differs along the dimension: no two scores of a row are equal.
    coarse = torch.floor(torch.randn(batch_size, vocabulary) * 64) / 64
    return [coarse + torch.randperm(vocabulary) / 2**21]


def get_init_inputs():
    return [k, temperature]

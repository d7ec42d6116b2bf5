"""Scores kept within a bound by a hyperbolic tangent, hidden from the future, turned into probabilities."""

import torch
import torch.nn as nn

batch_size = 4
heads = 16
length = 1024
cap = 5.0


class Model(nn.Module):
    """Softmax of cap * tanh(scores / cap) over the keys up to a query's own place, as in Gemma 2."""

    def __init__(self, cap: float) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        """scores: (batch_size, heads, length, length). Returns the same shape, zero above the diagonal."""
        places = torch.arange(scores.shape[-1], device=scores.device)
        future = places[None, :] > places[:, None]
        capped = self.cap * torch.tanh(scores / self.cap)
        return torch.softmax(capped.masked_fill(future, float("-inf")), dim=-1)


def get_inputs():
    return [torch.randn(batch_size, heads, length, length) * 4]


def get_init_inputs():
    return [cap]

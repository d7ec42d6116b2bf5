"""Attention probabilities with a penalty that grows with distance, its slope a matter of the head."""

import torch
import torch.nn as nn

batch_size = 4
heads = 16
length = 1024


class Model(nn.Module):
    """Softmax of scores less slope * |query place - key place|."""

    def forward(self, scores: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        """scores: (batch_size, heads, length, length), slopes: (heads,). Returns the shape of scores."""
        places = torch.arange(scores.shape[-1], device=scores.device)
        distance = (places[:, None] - places[None, :]).abs()
        return torch.softmax(scores - slopes[:, None, None] * distance, dim=-1)


def get_inputs():
    return [torch.randn(batch_size, heads, length, length) * 2, 0.5 * torch.rand(heads)]


def get_init_inputs():
    return []

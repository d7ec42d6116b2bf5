"""Gradients of many layers, each cut to a longest length."""

import torch
import torch.nn as nn

layers = 256
size = 262144
longest = 512.0


class Model(nn.Module):
    """Scales a row down where its Euclidean length is beyond the limit; others stay."""

    def __init__(self, longest: float) -> None:
        super().__init__()
        self.longest = longest

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        """gradient: (layers, size). Returns the same shape."""
        length = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
        return gradient * torch.clamp(self.longest / length, max=1.0)


def get_inputs():
    # Lengths lie on both sides of the limit.
    return [torch.randn(layers, size) * (2 * torch.rand(layers, 1) * longest / size**0.5)]


def get_init_inputs():
    return [longest]

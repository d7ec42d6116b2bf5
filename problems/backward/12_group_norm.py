"""Group norm of images."""

import torch
import torch.nn as nn

batch_size = 32
channels = 128
groups = 16
height = 128
width = 128


class Model(nn.Module):
    """Normalises each group of channels; scale and shift belong to the channels."""

    def __init__(self, num_groups: int, num_channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(num_groups, num_channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, num_channels, height, width). Returns the same shape."""
        return self.norm(x)


def get_inputs():
    spread = 0.5 + torch.rand(batch_size, channels, 1, 1)
    return [torch.randn(batch_size, channels, height, width) * spread + torch.randn(batch_size, channels, 1, 1)]


def get_init_inputs():
    return [groups, channels]

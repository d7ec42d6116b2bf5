"""A 3 x 3 convolution."""

import torch
import torch.nn as nn

batch_size = 32
channels = 64
height = 64
width = 64


class Model(nn.Module):
    """As many output channels as input channels, and a bias."""

    def __init__(self, num_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(num_channels, num_channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, num_channels, height, width). Returns the same shape."""
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels]

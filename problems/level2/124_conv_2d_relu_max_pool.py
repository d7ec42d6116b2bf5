"""Convolution, rectifier and pooling: what is not the largest need not be written."""

import torch
import torch.nn as nn

batch_size = 32
in_channels = 32
out_channels = 64
kernel_size = 3
pool_size = 2
height = 256
width = 256


class Model(nn.Module):
    """Convolution with a bias, ReLU, maximum over squares."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, pool_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.pool = nn.MaxPool2d(pool_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_channels, height, width). Returns (batch_size, out_channels, and smaller sizes)."""
        return self.pool(torch.relu(self.conv(x)))


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, pool_size]

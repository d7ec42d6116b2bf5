"""Transposed convolution of volumes with cubes."""

import torch
import torch.nn as nn

batch_size = 4
in_channels = 48
out_channels = 48
kernel_size = 3
depth = 64
height = 64
width = 64


class Model(nn.Module):
    """Three-dimensional transposed convolution with a bias."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose3d(in_channels, out_channels, kernel_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_channels, depth, height, width). Returns the same with new channels and sizes."""
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]

"""Transposed convolution of images with squares."""

import torch
import torch.nn as nn

batch_size = 8
in_channels = 64
out_channels = 64
kernel_size = 3
height = 512
width = 512


class Model(nn.Module):
    """Two-dimensional transposed convolution with a bias."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(in_channels, out_channels, kernel_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_channels, height, width). Returns (batch_size, out_channels, new height, new width)."""
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]

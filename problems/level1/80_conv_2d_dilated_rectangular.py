"""Convolution of images with padded rectangles that have gaps."""

import torch
import torch.nn as nn

batch_size = 8
in_channels = 32
out_channels = 64
kernel_size = (5, 9)
padding = (2, 4)
dilation = (2, 3)
height = 256
width = 256


class Model(nn.Module):
    """Two-dimensional convolution with padding, dilation and a bias."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: tuple, padding: tuple, dilation: tuple
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_channels, height, width). Returns (batch_size, out_channels, new height, new width)."""
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, padding, dilation]

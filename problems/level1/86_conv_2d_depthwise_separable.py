"""Depthwise convolution of images, then a pointwise one."""

import torch
import torch.nn as nn

batch_size = 8
in_channels = 64
out_channels = 128
kernel_size = 3
padding = 1
height = 512
width = 512


class Model(nn.Module):
    """Convolves every channel by itself, then mixes the channels of every pixel."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, padding: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(in_channels, in_channels, kernel_size, padding=padding, groups=in_channels)
        self.pointwise = nn.Conv2d(in_channels, out_channels, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_channels, height, width). Returns (batch_size, out_channels, height, width)."""
        return self.pointwise(self.depthwise(x))


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, padding]

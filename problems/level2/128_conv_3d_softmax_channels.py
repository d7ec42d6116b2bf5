"""Convolution of volumes, then probabilities over the channels of every place."""

import torch
import torch.nn as nn

batch_size = 8
in_channels = 8
out_channels = 16
kernel_size = 3
depth = 48
height = 96
width = 96


class Model(nn.Module):
    """Three-dimensional convolution and softmax over its channels."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_channels, depth, height, width). Returns (batch_size, out_channels, and smaller sizes)."""
        return torch.softmax(self.conv(x), dim=1)


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width) * 3]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]

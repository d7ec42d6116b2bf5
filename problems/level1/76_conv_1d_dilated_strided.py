"""Convolution of sequences with stride and gaps."""

import torch
import torch.nn as nn

batch_size = 16
in_channels = 64
out_channels = 128
kernel_size = 3
stride = 3
dilation = 4
length = 131072


class Model(nn.Module):
    """One-dimensional convolution with stride, dilation and a bias."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, stride=stride, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_channels, length). Returns (batch_size, out_channels, new length)."""
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, dilation]

"""Convolution, batch normalisation in training mode and swish."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 32
in_channels = 64
out_channels = 64
kernel_size = 3
height = 128
width = 128


class Model(nn.Module):
    """The batch's own statistics are used, and the running ones updated."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_channels, height, width). Returns (batch_size, out_channels, height, width)."""
        return F.silu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width) + torch.randn(in_channels, 1, 1)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]

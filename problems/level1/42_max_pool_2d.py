"""Largest value of a sliding square over images."""

import torch
import torch.nn as nn

batch_size = 16
channels = 64
height = 256
width = 256
kernel_size = 4
stride = 1
padding = 1
dilation = 1


class Model(nn.Module):
    """Maximum pooling over the last two dimensions."""

    def __init__(self, kernel_size: int, stride: int, padding: int, dilation: int) -> None:
        super().__init__()
        self.maxpool = nn.MaxPool2d(kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, channels, height, width). Returns (batch_size, channels, pooled height, pooled width)."""
        return self.maxpool(x)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [kernel_size, stride, padding, dilation]

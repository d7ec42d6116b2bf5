"""Convolution, group normalisation, hard swish, and the input added."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
channels = 64
kernel_size = 3
groups = 8
height = 192
width = 192


class Model(nn.Module):
    """Takes x + hardswish(group_norm(conv(x)))."""

    def __init__(self, channels: int, kernel_size: int, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size, padding=kernel_size // 2)
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.normal_(self.conv.bias)
        nn.init.uniform_(self.norm.weight, 0.5, 2.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, channels, height, width). Returns the same shape."""
        return x + F.hardswish(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels, kernel_size, groups]

"""Largest value of a sliding window with gaps, over long sequences."""

import torch
import torch.nn as nn

batch_size = 32
features = 96
length = 32768
kernel_size = 8
stride = 1
padding = 4
dilation = 3


class Model(nn.Module):
    """Dilated maximum pooling over the last dimension."""

    def __init__(self, kernel_size: int, stride: int, padding: int, dilation: int) -> None:
        super().__init__()
        self.maxpool = nn.MaxPool1d(kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, features, length). Returns (batch_size, features, pooled length)."""
        return self.maxpool(x)


def get_inputs():
    return [torch.randn(batch_size, features, length)]


def get_init_inputs():
    return [kernel_size, stride, padding, dilation]

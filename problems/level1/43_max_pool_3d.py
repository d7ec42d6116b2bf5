"""Largest value of a sliding cube over volumes."""

import torch
import torch.nn as nn

batch_size = 8
channels = 32
dim1 = 64
dim2 = 64
dim3 = 64
kernel_size = 3
stride = 2
padding = 1
dilation = 3


class Model(nn.Module):
    """Dilated, strided maximum pooling over the last three dimensions."""

    def __init__(self, kernel_size: int, stride: int, padding: int, dilation: int) -> None:
        super().__init__()
        self.maxpool = nn.MaxPool3d(kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, channels, dim1, dim2, dim3). Returns the same with the last three pooled."""
        return self.maxpool(x)


def get_inputs():
    return [torch.randn(batch_size, channels, dim1, dim2, dim3)]


def get_init_inputs():
    return [kernel_size, stride, padding, dilation]

"""Mean of every square of an image."""

import torch
import torch.nn as nn

batch_size = 16
channels = 64
height = 512
width = 512
kernel_size = 11


class Model(nn.Module):
    """Average pooling over the last two dimensions, windows side by side."""

    def __init__(self, kernel_size: int) -> None:
        super().__init__()
        self.avg_pool = nn.AvgPool2d(kernel_size=kernel_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, channels, height, width). Returns (batch_size, channels, pooled height, pooled width)."""
        return self.avg_pool(x)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [kernel_size]

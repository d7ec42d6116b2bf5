"""Large depthwise convolution, normalisation of every pixel, a wide perceptron, a scale, and the input added."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
channels = 128
height = 56
width = 56
kernel_size = 7
widen = 4


class Model(nn.Module):
    """The building block of ConvNeXt."""

    def __init__(self, channels: int, kernel_size: int, widen: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel_size, padding=kernel_size // 2, groups=channels)
        self.norm = nn.LayerNorm(channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)
        self.wide = nn.Linear(channels, widen * channels)
        self.narrow = nn.Linear(widen * channels, channels)
        self.scale = nn.Parameter(2 * torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, channels, height, width). Returns the same shape."""
        h = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        h = self.scale * self.narrow(F.gelu(self.wide(h)))
        return x + h.permute(0, 3, 1, 2)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels, kernel_size, widen]

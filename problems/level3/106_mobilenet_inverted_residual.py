"""Channels widened, convolved one by one, narrowed again, and the input added."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 32
channels = 32
wide_channels = 192
height = 112
width = 112


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """Batch normalisation with weights and biases that show where they are left out."""
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.weight, 1.0, 4.0)
    nn.init.normal_(norm.bias, std=1.0)
    return norm


class Model(nn.Module):
    """The building block of MobileNetV2, its activations kept between 0 and 6."""

    def __init__(self, channels: int, wide_channels: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(channels, wide_channels, 1, bias=False)
        self.norm1 = batch_norm(wide_channels)
        self.depthwise = nn.Conv2d(wide_channels, wide_channels, 3, padding=1, groups=wide_channels, bias=False)
        self.norm2 = batch_norm(wide_channels)
        self.project = nn.Conv2d(wide_channels, channels, 1, bias=False)
        self.norm3 = batch_norm(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, channels, height, width). Returns the same shape."""
        h = F.relu6(self.norm1(self.expand(x)))
        h = F.relu6(self.norm2(self.depthwise(h)))
        return x + self.norm3(self.project(h))


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels, wide_channels]

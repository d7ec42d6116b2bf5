"""Narrow, wide and again narrow convolutions with stride, and a projected input added."""

import torch
import torch.nn as nn

batch_size = 32
in_channels = 256
narrow_channels = 128
out_channels = 512
stride = 2
height = 56
width = 56


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """Batch normalisation with weights and biases that show where they are left out."""
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias, std=0.5)
    return norm


class Model(nn.Module):
    """The first block of a stage of ResNet-50."""

    def __init__(self, in_channels: int, narrow_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, narrow_channels, 1, bias=False)
        self.norm1 = batch_norm(narrow_channels)
        self.conv2 = nn.Conv2d(narrow_channels, narrow_channels, 3, stride=stride, padding=1, bias=False)
        self.norm2 = batch_norm(narrow_channels)
        self.conv3 = nn.Conv2d(narrow_channels, out_channels, 1, bias=False)
        self.norm3 = batch_norm(out_channels)
        self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)
        self.norm4 = batch_norm(out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_channels, height, width). Returns (batch_size, out_channels, and smaller sizes)."""
        h = torch.relu(self.norm1(self.conv1(x)))
        h = torch.relu(self.norm2(self.conv2(h)))
        return torch.relu(self.norm3(self.conv3(h)) + self.norm4(self.shortcut(x)))


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, narrow_channels, out_channels, stride]

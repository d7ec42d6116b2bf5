"""Two convolutions with batch normalisation in training mode, and the input added."""

import torch
import torch.nn as nn

batch_size = 32
channels = 64
height = 112
width = 112


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """Batch normalisation with weights and biases that show where they are left out."""
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias, std=0.5)
    return norm


class Model(nn.Module):
    """The building block of ResNet-18 and ResNet-34."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = batch_norm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = batch_norm(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, channels, height, width). Returns the same shape."""
        h = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(h)) + x)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels]

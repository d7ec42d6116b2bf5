"""Convolution, then every channel scaled by a factor that depends on the means of all of them, and the input added."""

import torch
import torch.nn as nn

batch_size = 32
channels = 64
narrow_channels = 16
height = 112
width = 112


class Model(nn.Module):
    """The channel attention of squeeze-and-excitation networks around a convolution."""

    def __init__(self, channels: int, narrow_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.squeeze = nn.Linear(channels, narrow_channels)
        self.excite = nn.Linear(narrow_channels, channels)
        nn.init.normal_(self.conv.bias, std=2.0)
        nn.init.normal_(self.squeeze.weight, std=0.5)
        nn.init.normal_(self.excite.weight, std=0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, channels, height, width). Returns the same shape."""
        h = torch.relu(self.conv(x))
        factor = torch.sigmoid(self.excite(torch.relu(self.squeeze(h.mean(dim=(2, 3))))))
        return torch.relu(x + h * factor[:, :, None, None])


def get_inputs():
    # Images of different brightness and contrast, so that their channel means differ.
    contrast = 0.5 + 2 * torch.rand(batch_size, channels, 1, 1)
    return [torch.randn(batch_size, channels, height, width) * contrast + torch.randn(batch_size, channels, 1, 1)]


def get_init_inputs():
    return [channels, narrow_channels]

"""PReLU: a learned slope for the negative values of each channel."""

import torch
import torch.nn as nn

batch_size = 64
channels = 256
length = 4096


class Model(nn.Module):
    """The gradient of a slope is a sum over batch and length."""

    def __init__(self, num_channels: int) -> None:
        super().__init__()
        self.prelu = nn.PReLU(num_channels)
        nn.init.uniform_(self.prelu.weight, 0.1, 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, num_channels, length). Returns the same shape."""
        return self.prelu(x)


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [channels]

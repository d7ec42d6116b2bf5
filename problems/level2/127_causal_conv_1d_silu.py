"""Short depthwise convolution of sequences that never looks ahead, then swish, as in state-space models."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
channels = 2048
length = 2048
kernel_size = 4


class Model(nn.Module):
    """Every channel is convolved by itself over the current and the last few places."""

    def __init__(self, channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, padding=kernel_size - 1, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, channels, length). Returns the same shape."""
        return F.silu(self.conv(x)[..., : x.shape[-1]])


def get_inputs():
    return [torch.randn(batch_size, channels, length) * 2]


def get_init_inputs():
    return [channels, kernel_size]

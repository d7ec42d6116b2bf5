"""Unpacks two four-bit numbers from every byte and scales them by group."""

import torch
import torch.nn as nn

rows = 16384
groups = 64
group_size = 128


class Model(nn.Module):
    """Takes (nibble - 8) * scale; the low four bits come first."""

    def forward(self, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """packed: (rows, groups, group_size / 2) of uint8, scale: (rows, groups, 1). Returns twice as many values."""
        pairs = torch.stack((packed & 15, packed >> 4), dim=-1)
        return (pairs.flatten(2).to(scale.dtype) - 8) * scale


def get_inputs():
    packed = torch.randint(0, 256, (rows, groups, group_size // 2), dtype=torch.uint8)
    return [packed, torch.randn(rows, groups, 1)]


def get_init_inputs():
    return []

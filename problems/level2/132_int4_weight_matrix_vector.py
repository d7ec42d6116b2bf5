"""One row times a matrix of packed four-bit numbers with a scale a group, as in generating text."""

import torch
import torch.nn as nn

in_groups = 64
group_size = 128
out_features = 16384


class Model(nn.Module):
    """Unpacks (nibble - 8) * scale, the low four bits first, and multiplies by the row."""

    def forward(self, x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """x: (in_groups * group_size,), packed: (out_features, in_groups, group_size / 2) of uint8.

        scale: (out_features, in_groups, 1). Returns (out_features,).
        """
        pairs = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(2)
        weight = (pairs.to(x.dtype) - 8) * scale
        return weight.flatten(1) @ x


def get_inputs():
    packed = torch.randint(0, 256, (out_features, in_groups, group_size // 2), dtype=torch.uint8)
    return [torch.randn(in_groups * group_size), packed, torch.rand(out_features, in_groups, 1) / 8]


def get_init_inputs():
    return []

"""Gated unit whose result is quantised to e4m3 by groups, as the input of an eight-bit product."""

import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 8192
groups = 64
group_size = 128


class Model(nn.Module):
    """Takes silu(gate) * up, and scales every group so that its largest magnitude becomes 448.

    Groups of 1 x 128 as in "DeepSeek-V3 Technical Report" (arXiv:2412.19437), section 3.3.2.
    """

    def forward(self, packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """packed: (rows, 2 * groups * group_size) in bfloat16, gate first.

        Returns e4m3 (rows, groups * group_size), and scales (rows, groups).
        """
        gate, up = packed.to(torch.get_default_dtype()).chunk(2, dim=1)
        grouped = (F.silu(gate) * up).unflatten(1, (-1, group_size))
        scale = grouped.abs().amax(dim=2, keepdim=True) / 448
        return (grouped / scale).to(torch.float8_e4m3fn).flatten(1), scale.flatten(1)


def get_inputs():
    size = torch.exp2(4 * torch.rand(rows, 2 * groups, 1) - 2)
    return [(torch.randn(rows, 2 * groups, group_size) * size).flatten(1).to(torch.bfloat16)]


def get_init_inputs():
    return []

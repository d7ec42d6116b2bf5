"""Linear layer on eight-bit whole numbers: rows of activations are quantised, weights are int8 already."""

import torch
import torch.nn as nn

batch_size = 2048
in_features = 4096
out_features = 4096


class Model(nn.Module):
    """Scales every row of x so that its largest magnitude becomes 127, rounds, multiplies whole numbers, and scales.

    The vector-wise quantisation of "LLM.int8()" (arXiv:2208.07339). A row's scale is rounded to bfloat16 before it is
    used. With x in bfloat16, division in float32 leaves one right number for every value.
    """

    def forward(self, x: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_features) in bfloat16, weight: (out_features, in_features) of int8.

        weight_scale: (out_features,). Returns (batch_size, out_features) in float32.
        """
        wide = weight_scale.dtype
        values = x.to(wide)
        scale = (values.abs().amax(dim=1, keepdim=True) / 127).to(torch.bfloat16).to(wide)
        codes = torch.round(values / scale)
        return (codes @ weight.to(wide).T) * scale * weight_scale


def get_inputs():
    x = (torch.randn(batch_size, in_features) * torch.exp2(4 * torch.rand(batch_size, 1) - 2)).to(torch.bfloat16)
    weight = torch.randint(-127, 128, (out_features, in_features), dtype=torch.int8)
    return [x, weight, torch.rand(out_features) / 1024 + 1e-4]


def get_init_inputs():
    return []

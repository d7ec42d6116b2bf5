"""Quantises groups of a row to four bits, two a byte, with scales in float16."""

import torch
import torch.nn as nn

rows = 8192
groups = 64
group_size = 128


class Model(nn.Module):
    """Scales every group so that its largest magnitude becomes 7, rounds, and stores the number plus 8.

    The symmetric group-wise weights of "GPTQ" (arXiv:2210.17323) and "AWQ" (arXiv:2306.00978). The scale is rounded to
    float16 before it is used. With x in bfloat16, division in float32 leaves one right number for every value.
    """

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: (rows, groups * group_size) in bfloat16. Returns bytes (rows, groups * group_size / 2), and scales.

        The first of two values is in the low four bits. Scales are (rows, groups) in float16.
        """
        wide = torch.get_default_dtype()
        grouped = x.to(wide).unflatten(1, (-1, group_size))
        scale = (grouped.abs().amax(dim=2, keepdim=True) / 7).to(torch.float16)
        code = torch.round(grouped / scale.to(wide)).flatten(1).int() + 8
        packed = code[:, 0::2] + 16 * code[:, 1::2]
        return packed.to(torch.uint8), scale.flatten(1)


def get_inputs():
    size = torch.exp2(8 * torch.rand(rows, groups, 1) - 4)
    return [(torch.randn(rows, groups, group_size) * size).flatten(1).to(torch.bfloat16)]


def get_init_inputs():
    return []

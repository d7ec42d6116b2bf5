"""A few rows times a matrix of four-bit numbers, eight of them interleaved in a 32-bit word."""

import torch
import torch.nn as nn

batch_size = 4
in_groups = 64
out_words = 1024
group_size = 128


class Model(nn.Module):
    """Takes x ((q - zero) * scale), the weights packed along the outputs.

    The layout of "AWQ" (arXiv:2306.00978): the eight numbers of a word, from the low bits on, belong to the outputs 0,
    2, 4, 6, 1, 3, 5 and 7.
    """

    def forward(self, x: torch.Tensor, packed: torch.Tensor, zeros: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_groups * group_size) in float16, packed: (in_groups * group_size, out_words) of int32.

        zeros: (in_groups, out_words) of int32, scale: (in_groups, out_words * 8) in float16. Returns
        (batch_size, out_words * 8) in float16.
        """
        wide = torch.get_default_dtype()
        shifts = torch.tensor([0, 16, 4, 20, 8, 24, 12, 28], device=x.device)
        q = ((packed[:, :, None] >> shifts) & 15).flatten(1).to(wide)
        zero = ((zeros[:, :, None] >> shifts) & 15).flatten(1).to(wide)
        weight = (q.unflatten(0, (-1, group_size)) - zero[:, None]) * scale.to(wide)[:, None]
        return (x.to(wide) @ weight.flatten(0, 1)).to(x.dtype)


def get_inputs():
    packed, zeros = (
        torch.randint(-(2**31), 2**31, (rows, out_words), dtype=torch.int32)
        for rows in (in_groups * group_size, in_groups)
    )
    scale = (torch.rand(in_groups, out_words * 8) / 256 + 1e-4).to(torch.float16)
    return [torch.randn(batch_size, in_groups * group_size).to(torch.float16), packed, zeros, scale]


def get_init_inputs():
    return []

"""Quantises blocks of 32 values to MXFP4: e2m1, two a byte, with a power of two as shared scale."""

import torch
import torch.nn as nn

rows = 4096
blocks = 256
block_size = 32


class Model(nn.Module):
    """Takes the exponent of a block's largest magnitude, less 2, as shared exponent; larger values than 6 saturate.

    OCP Microscaling Formats (MX) Specification, version 1.0, sections 5.3 and 6.3. The numbers of e2m1 are 0, 0.5, 1,
    1.5, 2, 3, 4 and 6, by rising code; the sign is bit 3. Ties go to the even code.
    """

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: (rows, blocks * block_size). Returns codes (rows, blocks * block_size / 2) and scales (rows, blocks).

        The first of two values is in the low four bits. A scale is a byte (E8M0): the exponent plus 127.
        """
        blocked = x.unflatten(1, (-1, block_size))
        _, exponent = torch.frexp(blocked.abs().amax(dim=2, keepdim=True))
        shared = exponent - 1 - 2
        scaled = torch.ldexp(blocked, -shared).flatten(1)
        size = scaled.abs()
        low = (size > 0.25).int() + (size >= 0.75).int() + (size > 1.25).int() + (size >= 1.75).int()
        code = low + (size > 2.5).int() + (size >= 3.5).int() + (size > 5).int() + 8 * (scaled < 0).int()
        packed = code[:, 0::2] + 16 * code[:, 1::2]
        return packed.to(torch.uint8), (shared + 127).to(torch.uint8).flatten(1)


def get_inputs():
    size = torch.exp2(8 * torch.rand(rows, blocks, 1) - 4)
    return [(torch.randn(rows, blocks, block_size) * size).flatten(1)]


def get_init_inputs():
    return []

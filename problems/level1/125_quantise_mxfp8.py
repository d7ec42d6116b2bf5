"""Quantises blocks of 32 values to MXFP8: e4m3 with a power of two as shared scale."""

import torch
import torch.nn as nn

rows = 8192
blocks = 256
block_size = 32


class Model(nn.Module):
    """Takes the exponent of a block's largest magnitude, less 8, as shared exponent; larger values saturate.

    OCP Microscaling Formats (MX) Specification, version 1.0, sections 5.2 and 6.3.
    """

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: (rows, blocks * block_size). Returns e4m3 of the same shape, and scales (rows, blocks).

        A scale is a byte (E8M0): the exponent plus 127.
        """
        blocked = x.unflatten(1, (-1, block_size))
        _, exponent = torch.frexp(blocked.abs().amax(dim=2, keepdim=True))
        shared = exponent - 1 - 8
        codes = torch.ldexp(blocked, -shared).clamp(-448, 448).to(torch.float8_e4m3fn)
        return codes.flatten(1), (shared + 127).to(torch.uint8).flatten(1)


def get_inputs():
    size = torch.exp2(8 * torch.rand(rows, blocks, 1) - 4)
    return [(torch.randn(rows, blocks, block_size) * size).flatten(1)]


def get_init_inputs():
    return []

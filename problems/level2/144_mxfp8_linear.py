"""Linear layer in MXFP8: e4m3 with a power of two for every 32 values along a row."""

import torch
import torch.nn as nn

batch_size = 4096
in_blocks = 128
out_features = 4096
block_size = 32


class Model(nn.Module):
    """Quantises x to MXFP8 and multiplies it by weights in MXFP8.

    OCP Microscaling Formats (MX) Specification, version 1.0, sections 5.2 and 6: the shared exponent is that of a
    block's largest magnitude, less 8; larger values than 448 saturate.
    """

    def forward(self, x: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_blocks * block_size) in bfloat16, weight: (out_features, in_blocks * block_size) in e4m3.

        weight_scale: (out_features, in_blocks) of uint8: the exponent plus 127 (E8M0). Returns
        (batch_size, out_features) in bfloat16.
        """
        wide = torch.get_default_dtype()
        blocked = x.to(wide).unflatten(1, (-1, block_size))
        _, exponent = torch.frexp(blocked.abs().amax(dim=2, keepdim=True))
        shared = exponent - 1 - 8
        codes = torch.ldexp(blocked, -shared).clamp(-448, 448).to(torch.float8_e4m3fn)
        activations = torch.ldexp(codes.to(wide), shared).flatten(1)
        weights = torch.ldexp(weight.to(wide).unflatten(1, (-1, block_size)), weight_scale.int()[:, :, None] - 127)
        return (activations @ weights.flatten(1).T).to(x.dtype)


def get_inputs():
    size = torch.exp2(4 * torch.rand(batch_size, in_blocks, 1) - 2)
    x = (torch.randn(batch_size, in_blocks, block_size) * size).flatten(1).to(torch.bfloat16)
    weight = (torch.randn(out_features, in_blocks * block_size) * 64).to(torch.float8_e4m3fn)
    return [x, weight, torch.randint(114, 120, (out_features, in_blocks), dtype=torch.uint8)]


def get_init_inputs():
    return []

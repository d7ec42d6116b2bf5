"""Linear layer with weights in MXFP4, two a byte, and activations that are quantised to MXFP8."""

import torch
import torch.nn as nn

batch_size = 512
in_blocks = 128
out_features = 8192
block_size = 32


class Model(nn.Module):
    """Quantises x to e4m3 with a power of two for every 32 values, and multiplies by e2m1 times a power of two.

    OCP Microscaling Formats (MX) Specification, version 1.0, sections 5.2, 5.3 and 6. The numbers of e2m1 are 0, 0.5,
    1, 1.5, 2, 3, 4 and 6, by rising code; the sign is bit 3.
    """

    def forward(self, x: torch.Tensor, packed: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_blocks * block_size) in bfloat16.

        packed: (out_features, in_blocks * block_size / 2) of uint8, the first of two values in the low four bits.
        weight_scale: (out_features, in_blocks) of uint8: the exponent plus 127. Returns (batch_size, out_features) in
        bfloat16.
        """
        wide = torch.get_default_dtype()
        blocked = x.to(wide).unflatten(1, (-1, block_size))
        _, exponent = torch.frexp(blocked.abs().amax(dim=2, keepdim=True))
        shared = exponent - 1 - 8
        codes = torch.ldexp(blocked, -shared).clamp(-448, 448).to(torch.float8_e4m3fn)
        activations = torch.ldexp(codes.to(wide), shared).flatten(1)
        numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=wide, device=x.device)
        nibbles = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1).int()
        values = (numbers[nibbles & 7] * (1 - nibbles // 8 * 2)).unflatten(1, (-1, block_size))
        weights = torch.ldexp(values, weight_scale.int()[:, :, None] - 127)
        return (activations @ weights.flatten(1).T).to(x.dtype)


def get_inputs():
    size = torch.exp2(4 * torch.rand(batch_size, in_blocks, 1) - 2)
    x = (torch.randn(batch_size, in_blocks, block_size) * size).flatten(1).to(torch.bfloat16)
    packed = torch.randint(0, 256, (out_features, in_blocks * block_size // 2), dtype=torch.uint8)
    return [x, packed, torch.randint(119, 125, (out_features, in_blocks), dtype=torch.uint8)]


def get_init_inputs():
    return []

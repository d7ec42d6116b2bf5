"""Linear layer in e4m3 with scales for 1 x 128 groups of activations and 128 x 128 blocks of weights."""

import torch
import torch.nn as nn

batch_size = 4096
in_blocks = 32
out_blocks = 32
block = 128


class Model(nn.Module):
    """Quantises x by groups to e4m3, multiplies, and adds up the products of the blocks with their scales.

    "DeepSeek-V3 Technical Report" (arXiv:2412.19437), section 3.3.2. Scales of x are powers of two, as in
    DeepSeek-V3.1: the least one above the largest magnitude over 448.
    """

    def forward(self, x: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_blocks * block) in bfloat16, weight: (out_blocks * block, in_blocks * block) in e4m3.

        weight_scale: (out_blocks, in_blocks) in bfloat16. Returns (batch_size, out_blocks * block) in bfloat16.
        """
        wide = torch.get_default_dtype()
        values = x.to(wide).unflatten(1, (-1, block))
        _, exponent = torch.frexp(values.abs().amax(dim=2, keepdim=True) / 448)
        codes = torch.ldexp(values, -exponent).to(torch.float8_e4m3fn)
        activations = torch.ldexp(codes.to(wide), exponent).flatten(1)
        spread = weight_scale.to(wide).repeat_interleave(block, dim=0).repeat_interleave(block, dim=1)
        return (activations @ (weight.to(wide) * spread).T).to(x.dtype)


def get_inputs():
    size = torch.exp2(4 * torch.rand(batch_size, in_blocks, 1) - 2)
    channel = torch.ones(block)
    channel[0] = 256  # a channel of outliers in each group, as transformers have: it sets the scales
    x = (torch.randn(batch_size, in_blocks, block) * size * channel).flatten(1).to(torch.bfloat16)
    weight = (torch.randn(out_blocks * block, in_blocks, block) * 64 / channel).flatten(1).to(torch.float8_e4m3fn)
    return [x, weight, (torch.rand(out_blocks, in_blocks) / 1024 + 1e-4).to(torch.bfloat16)]


def get_init_inputs():
    return []

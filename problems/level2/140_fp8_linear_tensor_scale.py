"""Linear layer in eight-bit floating point: activations are quantised with one scale, weights are e4m3 already."""

import torch
import torch.nn as nn

batch_size = 4096
in_features = 4096
out_features = 4096


class Model(nn.Module):
    """Scales x by a power of two so that it fits e4m3 (up to 448), rounds, multiplies, and scales the product.

    Micikevicius et al., "FP8 Formats for Deep Learning" (arXiv:2209.05433). The scale is the least power of two above
    the largest magnitude over 448, so that scaling is exact.
    """

    def forward(self, x: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_features) in bfloat16, weight: (out_features, in_features) in e4m3, weight_scale: (1,).

        Returns (batch_size, out_features) in bfloat16.
        """
        wide = torch.get_default_dtype()
        values = x.to(wide)
        _, exponent = torch.frexp(values.abs().amax() / 448)
        codes = torch.ldexp(values, -exponent).to(torch.float8_e4m3fn)
        product = codes.to(wide) @ weight.to(wide).T
        return (torch.ldexp(product, exponent) * weight_scale.to(wide)).to(x.dtype)


def get_inputs():
    x = (torch.randn(batch_size, in_features) - 3).to(torch.bfloat16)  # the largest magnitude is negative
    weight = (torch.randn(out_features, in_features) * 64).to(torch.float8_e4m3fn)
    return [x, weight, (torch.rand(1) / 1024 + 1e-4).to(torch.bfloat16)]


def get_init_inputs():
    return []

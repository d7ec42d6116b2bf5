"""Linear layer in eight-bit floating point with a scale for every row of activations and of weights."""

import torch
import torch.nn as nn

batch_size = 4096
in_features = 4096
out_features = 4096


class Model(nn.Module):
    """Scales every row of x by a power of two so that it fits e4m3 (up to 448), multiplies, scales, adds a bias.

    Dynamic quantisation of tokens with weights that are quantised by channel, as inference engines use it. The scale is
    the least power of two above the largest magnitude over 448: scaling is exact, and no code depends on its rounding.
    """

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        """x: (batch_size, in_features) in bfloat16, weight: (out_features, in_features) in e4m3.

        weight_scale and bias: (out_features,) in bfloat16. Returns (batch_size, out_features) in bfloat16.
        """
        wide = torch.get_default_dtype()
        values = x.to(wide)
        _, exponent = torch.frexp(values.abs().amax(dim=1, keepdim=True) / 448)
        codes = torch.ldexp(values, -exponent).to(torch.float8_e4m3fn)
        product = codes.to(wide) @ weight.to(wide).T
        return (torch.ldexp(product, exponent) * weight_scale.to(wide) + bias.to(wide)).to(x.dtype)


def get_inputs():
    channel = torch.ones(in_features)
    channel[0] = 256  # a channel of outliers, as transformers have: it sets the scales
    x = torch.randn(batch_size, in_features) * torch.exp2(4 * torch.rand(batch_size, 1) - 2)
    weight = torch.randn(out_features, in_features) * 64
    x, weight = (x * channel).to(torch.bfloat16), (weight / channel).to(torch.float8_e4m3fn)
    weight_scale = (torch.rand(out_features) / 1024 + 1e-4).to(torch.bfloat16)
    return [x, weight, weight_scale, torch.randn(out_features).to(torch.bfloat16)]


def get_init_inputs():
    return []

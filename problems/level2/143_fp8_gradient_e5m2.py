"""Gradient of a linear layer's input in eight-bit floating point: incoming gradients in e5m2, weights in e4m3."""

import torch
import torch.nn as nn

batch_size = 4096
in_features = 4096
out_features = 4096


class Model(nn.Module):
    """Scales the gradient, saturates at 57344, rounds to e5m2, and multiplies by the weights.

    Micikevicius et al., "FP8 Formats for Deep Learning" (arXiv:2209.05433): e4m3 forward, e5m2 for gradients. The
    gradient's scale is given, as with delayed scaling; the product with it is exact in float32.
    """

    def forward(
        self, gradient: torch.Tensor, scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
    ) -> torch.Tensor:
        """gradient: (batch_size, out_features) in bfloat16, weight: (out_features, in_features) in e4m3.

        scale and weight_scale: (1,) in bfloat16. Returns (batch_size, in_features) in bfloat16.
        """
        wide = torch.get_default_dtype()
        scaled = gradient.to(wide) * scale.to(wide)
        codes = scaled.clamp(-57344, 57344).to(torch.float8_e5m2)
        product = codes.to(wide) @ weight.to(wide)
        return (product * (weight_scale.to(wide) / scale.to(wide))).to(gradient.dtype)


def get_inputs():
    gradient = torch.randn(batch_size, out_features) * torch.exp2(8 * torch.rand(batch_size, 1) - 12)
    # Some rows saturate, and others keep few digits.
    scale = torch.exp2(15 + 6 * torch.rand(1)).to(torch.bfloat16)
    weight = (torch.randn(out_features, in_features) * 64).to(torch.float8_e4m3fn)
    return [gradient.to(torch.bfloat16), scale, weight, (torch.rand(1) / 1024 + 1e-4).to(torch.bfloat16)]


def get_init_inputs():
    return []

"""Quantised by torch, the exponents read from the bits; products are exact in float32."""

import torch


def narrow(scaled):
    return scaled.clamp(-448, 448).to(torch.float8_e4m3fn)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, weight_scale):
        blocked = x.float().view(x.shape[0], -1, 32)
        unit = ((blocked.abs().amax(2, keepdim=True).view(torch.int32) >> 23) - 8 << 23).view(torch.float32)
        activations = (narrow(blocked / unit).float() * unit).flatten(1)
        powers = (weight_scale.int() << 23).view(torch.float32)[:, :, None]
        values = weight.float().view(weight.shape[0], -1, 32)
        return (activations @ (values * powers).flatten(1).T).bfloat16()

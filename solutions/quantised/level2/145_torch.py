"""Quantised by torch, the exponents read from the bits; weights are exact in float32."""

import torch


def narrow(scaled):
    return scaled.clamp(-448, 448).to(torch.float8_e4m3fn)


class ModelNew(torch.nn.Module):
    def forward(self, x, packed, weight_scale):
        blocked = x.float().view(x.shape[0], -1, 32)
        unit = ((blocked.abs().amax(2, keepdim=True).view(torch.int32) >> 23) - 8 << 23).view(torch.float32)
        activations = (narrow(blocked / unit).float() * unit).flatten(1)
        powers = (weight_scale.int() << 23).view(torch.float32)[:, :, None]
        half = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=x.device)
        numbers = torch.cat((half, -half))
        pairs = torch.stack((numbers[(packed & 15).int()], numbers[(packed >> 4).int()]), dim=-1)
        values = pairs.view(packed.shape[0], -1, 32)
        return (activations @ (values * powers).flatten(1).T).bfloat16()

"""The gate in float32 by torch, and codes with one division a group."""

import torch


def codes_of(gated, scale):
    return (gated * (1 / scale)).to(torch.float8_e4m3fn)


class ModelNew(torch.nn.Module):
    def forward(self, packed):
        gate, up = packed.float().chunk(2, dim=1)
        gated = (gate / (1 + torch.exp(-gate)) * up).view(packed.shape[0], -1, 128)
        scale = gated.abs().amax(2) / 448
        return codes_of(gated, scale[:, :, None]).flatten(1), scale

"""Quantised by torch: the nearest number of e2m1, ties to the even code."""

import torch


def narrow(scaled):
    size = scaled.abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    return torch.copysign((size / step).round() * step, scaled)


class ModelNew(torch.nn.Module):
    def forward(self, x, x_scale, packed, scale, w_scale):
        blocked = x.float().view(x.shape[0], -1, 16)
        x_scales = (blocked.abs().amax(2, keepdim=True) / 6 / x_scale.float()).to(torch.float8_e4m3fn).float()
        activations = (narrow(blocked / (x_scales * x_scale.float())) * x_scales).flatten(1)
        half = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=x.device)
        numbers = torch.cat((half, -half))
        pairs = torch.stack((numbers[(packed & 15).int()], numbers[(packed >> 4).int()]), dim=-1)
        weights = (pairs.view(packed.shape[0], -1, 16) * scale.float()[:, :, None]).flatten(1)
        return ((activations @ weights.T) * (x_scale.float() * w_scale.float())).bfloat16()

"""Bytes and scales by torch; ties go to the even code."""

import torch


def scaled_of(blocked, unit):
    return blocked / unit


class ModelNew(torch.nn.Module):
    def forward(self, x, tensor_scale):
        blocked = x.float().view(x.shape[0], -1, 16)
        largest = torch.maximum(blocked.amax(2), -blocked.amin(2))
        scale = (largest / 6 / tensor_scale).clamp(max=448).to(torch.float8_e4m3fn)
        scaled = scaled_of(blocked, (scale.float() * tensor_scale)[:, :, None]).view(x.shape)
        size = scaled.abs()
        up = torch.tensor([0.75, 1.75, 3.5], device=x.device)
        down = torch.tensor([0.25, 1.25, 2.5, 5.0], device=x.device)
        code = torch.bucketize(size, up, right=True) + torch.bucketize(size, down) | (scaled < 0).long() << 3
        return (code[:, 0::2] | code[:, 1::2] << 4).to(torch.uint8), scale

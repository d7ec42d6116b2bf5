"""Bytes and scales by torch."""

import torch


def scaled_of(grouped, scale):
    return grouped / scale


class ModelNew(torch.nn.Module):
    def forward(self, x):
        grouped = x.float().view(x.shape[0], -1, 128)
        scale = (torch.maximum(grouped.amax(2), -grouped.amin(2)) / 7).half()
        code = scaled_of(grouped, scale.float()[:, :, None]).round().view(x.shape).to(torch.int16) + 8
        return (code[:, 0::2] | code[:, 1::2] << 4).to(torch.uint8), scale

"""The norm in float32 by torch, and codes with one division a row."""

import torch


def codes_of(normed, scale):
    return (normed * (1 / scale)).to(torch.float8_e4m3fn)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        normed = torch.nn.functional.rms_norm(x.float(), (x.shape[1],), weight, 1e-5)
        scale = torch.maximum(normed.amax(1, keepdim=True), -normed.amin(1, keepdim=True)) / 448
        return codes_of(normed, scale), scale

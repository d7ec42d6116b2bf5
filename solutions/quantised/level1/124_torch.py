"""Codes and scales by torch, with one division a group."""

import torch


def codes_of(x, scale):
    return (x * (1 / scale)).to(torch.float8_e4m3fn)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        grouped = x.view(x.shape[0], -1, 128)
        scale = torch.maximum(grouped.amax(2), -grouped.amin(2)) / 448
        return codes_of(grouped, scale[:, :, None]).view(x.shape), scale.T.contiguous()

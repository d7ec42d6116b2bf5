"""Codes and scales by torch, with one division a row."""

import torch


def codes_of(x, scale):
    return (x * (1 / scale)).to(torch.float8_e4m3fn)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        scale = torch.maximum(x.amax(1, keepdim=True), -x.amin(1, keepdim=True)) / 448
        return codes_of(x, scale), scale

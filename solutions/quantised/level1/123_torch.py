"""Codes and the scale by torch, with one division."""

import torch


def codes_of(x, scale):
    return (x * (1 / scale)).to(torch.float8_e5m2)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        scale = torch.maximum(x.amax(), -x.amin()) / 57344
        return codes_of(x, scale), scale

"""Quantised by torch; the products of whole numbers are added in float64, where they are exact."""

import torch


def narrow(scaled):
    return scaled.round()


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, weight_scale):
        values = x.float()
        scale = (values.abs().amax(1, keepdim=True) / 127).bfloat16().float()
        codes = narrow(values / scale)
        return (codes.double() @ weight.double().T).float() * (scale * weight_scale)

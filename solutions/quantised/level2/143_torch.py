"""Quantised by torch; the product is of numbers of eight bits, whose sums are in float32."""

import torch


def narrow(scaled):
    return scaled.clamp(-57344, 57344).to(torch.float8_e5m2)


class ModelNew(torch.nn.Module):
    def forward(self, gradient, scale, weight, weight_scale):
        codes = narrow(gradient.float() * scale.float())
        return ((codes.float() @ weight.float()) * weight_scale.float() / scale.float()).bfloat16()

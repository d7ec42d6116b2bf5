"""Quantised by torch with one division a row; the product is of numbers of e4m3, whose sums are in float32."""

import torch


def narrow(scaled):
    return scaled.to(torch.float8_e4m3fn)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, weight_scale, bias):
        scale = torch.maximum(x.amax(1, keepdim=True), -x.amin(1, keepdim=True)).float() / 448
        codes = narrow(x.float() * (1 / scale))
        return torch.addcmul(bias.float(), codes.float() @ weight.float().T, scale * weight_scale.float()).bfloat16()

"""Quantised by torch with a power of two for each row; the product is of numbers of e4m3, whose sums are in float32."""

import torch


def narrow(scaled):
    return scaled.to(torch.float8_e4m3fn)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, weight_scale, bias):
        largest = torch.maximum(x.amax(1, keepdim=True), -x.amin(1, keepdim=True)).float()
        scale = torch.exp2(torch.log2(largest / 448).floor() + 1)
        codes = narrow(x.float() * (1 / scale))
        return torch.addcmul(bias.float(), codes.float() @ weight.float().T, scale * weight_scale.float()).bfloat16()

"""Codes and exponents by torch: the exponent is read from the bits of the largest magnitude."""

import torch


def codes_of(scaled):
    return scaled.clamp(-448, 448).to(torch.float8_e4m3fn)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        blocked = x.view(x.shape[0], -1, 32)
        biased = (blocked.abs().amax(2).view(torch.int32) >> 23) - 8
        unit = (biased << 23).view(torch.float32)
        return codes_of(blocked / unit[:, :, None]).view(x.shape), biased.to(torch.uint8)

"""Codes and scales by torch: the tiles are turned before they are scaled."""

import torch


def codes_of(values, scale):
    return (values * (1 / scale)).to(torch.float8_e4m3fn)


class ModelNew(torch.nn.Module):
    def forward(self, codes, scale):
        values = codes.float() * scale.repeat_interleave(128, dim=1)
        turned = values.T.contiguous().view(codes.shape[1], -1, 128)
        turned_scale = torch.maximum(turned.amax(2), -turned.amin(2)) / 448
        return codes_of(turned, turned_scale[:, :, None]).flatten(1), turned_scale

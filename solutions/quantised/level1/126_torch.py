"""Bytes and exponents by torch: a value's code is found among the borders between the numbers of e2m1."""

import torch


def narrow(scaled):
    return scaled


class ModelNew(torch.nn.Module):
    def forward(self, x):
        blocked = x.view(x.shape[0], -1, 32)
        biased = (blocked.abs().amax(2).view(torch.int32) >> 23) - 2
        scaled = narrow((blocked / (biased << 23).view(torch.float32)[:, :, None]).view(x.shape))
        up = torch.tensor([0.75, 1.75, 3.5], device=x.device)  # ties go to the even code: above these borders,
        down = torch.tensor([0.25, 1.25, 2.5, 5.0], device=x.device)  # and below these
        code = torch.bucketize(scaled.abs(), up, right=True) + torch.bucketize(scaled.abs(), down)
        code = code | (scaled < 0).long() << 3
        return (code[:, 0::2] | code[:, 1::2] << 4).to(torch.uint8), biased.to(torch.uint8)

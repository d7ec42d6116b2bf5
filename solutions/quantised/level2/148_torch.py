"""Weights in float32 by torch, and one product."""

import torch


def weights_of(q, scale):
    return (q.float().view(*scale.shape, -1) * scale.float()[:, :, None]).flatten(1)


class ModelNew(torch.nn.Module):
    def forward(self, x, q, scale):
        return (x.float() @ weights_of(q, scale).T).half()

"""Scores and sums in float32 by torch; the scale of the keys is applied to the queries."""

import torch


def kept(values):
    return values.float()


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, k_scale, v_scale):
        queries = kept(q) * (k_scale.float()[:, None, None] / q.shape[-1] ** 0.5)
        weights = kept(torch.softmax(queries @ kept(k).mT, dim=-1))
        return (weights @ kept(v) * v_scale.float()[:, None, None]).half()

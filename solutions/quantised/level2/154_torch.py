"""Scores and sums in float32 by torch; the scales of the keys are applied to the scores."""

import torch


def kept(values):
    return values.float()


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, k_scale, v_scale):
        scores = (kept(q) @ kept(k).mT) * (k_scale.float() / q.shape[-1] ** 0.5)[:, :, None]
        weights = kept(torch.softmax(scores, dim=-1) * v_scale.float()[:, :, None])
        return (weights @ kept(v)).half()

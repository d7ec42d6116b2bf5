"""Divergence of a student's distribution from a teacher's."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8192
classes = 4096


class Model(nn.Module):
    """Sum over the classes, mean over the batch; both sides are logits and have gradients."""

    def forward(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        """student, teacher: (batch_size, classes). Returns a scalar tensor."""
        log_q, log_p = torch.log_softmax(student, dim=-1), torch.log_softmax(teacher, dim=-1)
        return F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)


def get_inputs():
    # The spread differs from draw to draw, and with it the divergence.
    spread = 0.5 + torch.rand(1)
    return [torch.randn(batch_size, classes) * spread, torch.randn(batch_size, classes) * spread]


def get_init_inputs():
    return []

"""Mean by which predictions miss a margin on the side of their label."""

import torch
import torch.nn as nn

batch_size = 16384
dim = 4096


class Model(nn.Module):
    """Averages max(1 - prediction * target, 0) over all elements."""

    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """predictions: (batch_size, dim), targets: the same, each 1 or -1. Returns a scalar tensor."""
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))


def get_inputs():
    # The size, and the share of either label, differ from draw to draw, and with them the loss.
    size, share = 0.5 + torch.rand(2)
    targets = torch.where(torch.rand(batch_size, dim) < share / 2, 1.0, -1.0)
    return [(torch.randn(batch_size, dim) + 0.5) * size, targets]


def get_init_inputs():
    return []

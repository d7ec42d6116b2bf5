"""Divergence of predicted from target distributions, averaged over the batch."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8192
dim = 8192


class Model(nn.Module):
    """Sums target * (log(target) - log(prediction)) and divides by the batch size."""

    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """predictions and targets: (batch_size, dim), rows are probabilities. Returns a scalar tensor."""
        return F.kl_div(torch.log(predictions), targets, reduction="batchmean")


def get_inputs():
    # The sizes differ from draw to draw, and with them the loss.
    size, other = 0.5 + 1.5 * torch.rand(2)
    predictions = torch.softmax(torch.randn(batch_size, dim) * size, dim=1)
    return [predictions, torch.softmax(torch.randn(batch_size, dim) * other, dim=1)]


def get_init_inputs():
    return []

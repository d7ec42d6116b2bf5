"""Cross-entropy of scores against class labels, averaged over the batch."""

import torch
import torch.nn as nn

batch_size = 32768
num_classes = 4096


class Model(nn.Module):
    """Mean over the rows of log(sum(exp(scores))) less the score of the row's label."""

    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """predictions: (batch_size, num_classes), targets: (batch_size,) of int64. Returns a scalar tensor."""
        return torch.nn.functional.cross_entropy(predictions, targets)


def get_inputs():
    # The size of the scores and the region of the labels differ from draw to draw, and with them the loss.
    scores = torch.randn(batch_size, num_classes) * (0.5 + 2.5 * torch.rand(1)) + torch.linspace(-3, 3, num_classes)
    region = torch.randint(0, num_classes, (1,)) + torch.randint(0, num_classes // 8, (batch_size,))
    return [scores, region % num_classes]


def get_init_inputs():
    return []

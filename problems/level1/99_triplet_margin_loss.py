"""Mean by which an anchor is not closer to its positive than to its negative."""

import torch
import torch.nn as nn

batch_size = 16384
dim = 4096
margin = 1.0


class Model(nn.Module):
    """Averages max(|a - p| - |a - n| + margin, 0) over the batch."""

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.loss = nn.TripletMarginLoss(margin=margin)

    def forward(self, anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
        """Three times (batch_size, dim). Returns a scalar tensor."""
        return self.loss(anchor, positive, negative)


def get_inputs():
    # The sizes differ from draw to draw, and with them the loss.
    size, other = 0.5 + 1.5 * torch.rand(2)
    anchor, positive, negative = (torch.randn(batch_size, dim) for _ in range(3))
    return [anchor, positive * size, negative * other]


def get_init_inputs():
    return [margin]

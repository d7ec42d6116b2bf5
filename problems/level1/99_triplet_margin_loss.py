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
    # The size differs from draw to draw, and with it the loss. On either side of the margin are many rows in every draw:
    # a loss that hangs on a few rows close to it is what float32 makes of them.
    size = 1.0 + torch.rand(1)
    anchor, positive, negative = (torch.randn(batch_size, dim) for _ in range(3))
    return [anchor, positive * size * (0.5 + torch.rand(batch_size, 1)), negative * size]


def get_init_inputs():
    return [margin]

"""Linear layer plus a scaled low-rank correction of it."""

import torch
import torch.nn as nn

batch_size = 4096
in_features = 2048
out_features = 2048
rank = 32
scale = 2.0


class Model(nn.Module):
    """Takes x W^T + scale * (x A^T) B^T."""

    def __init__(self, in_features: int, out_features: int, rank: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.base = nn.Linear(in_features, out_features)
        self.down = nn.Linear(in_features, rank, bias=False)
        self.up = nn.Linear(rank, out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_features). Returns (batch_size, out_features)."""
        return self.base(x) + self.scale * self.up(self.down(x))


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, rank, scale]

"""The largest values of every row and their places, in falling order."""

import torch
import torch.nn as nn

batch_size = 8192
dim = 8192
k = 64


class Model(nn.Module):
    """Selects and sorts the k largest values of every row."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: (batch_size, dim). Returns values and indices (int64), each (batch_size, k)."""
        values, indices = torch.topk(x, self.k, dim=1)
        return values, indices


def get_inputs():
    # A coarse random value plus a fine step that differs along the dimension: no two values of a line are equal.
    coarse = torch.floor(torch.randn(batch_size, dim) * 256) / 256
    return [coarse + torch.randperm(dim) / 2**21]


def get_init_inputs():
    return [k]

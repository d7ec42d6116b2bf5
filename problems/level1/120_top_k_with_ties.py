"""The largest scores of every row, with many ties, and their places."""

import torch
import torch.nn as nn

batch_size = 8192
dim = 8192
k = 64


class Model(nn.Module):
    """Selects and sorts the k largest values of every row; which of several equal ones is open."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: (batch_size, dim). Returns values and indices (int64), each (batch_size, k)."""
        values, indices = torch.topk(x, self.k, dim=1)
        return values, indices


def get_inputs():
    # Half of the scores come in steps of an eighth: rows have several of each, also at the end of the selection.
    x = torch.randn(batch_size, dim)
    return [torch.where(torch.rand(batch_size, dim) < 0.5, torch.floor(x * 8) / 8, x)]


def get_init_inputs():
    return [k]

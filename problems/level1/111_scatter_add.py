"""Adds values to places of a row that are named by index; places repeat."""

import torch
import torch.nn as nn

rows = 4096
columns = 2048
added = 8192


class Model(nn.Module):
    """Adds every value of a row to the place that its index names."""

    def forward(self, x: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """x: (rows, columns), index: (rows, added) of int64, values: (rows, added). Returns (rows, columns)."""
        return torch.scatter_add(x, 1, index, values)


def get_inputs():
    # Whole numbers, whose sums are exact in every order.
    x = torch.randint(-(2**15), 2**15, (rows, columns)).float()
    values = torch.randint(-(2**15), 2**15, (rows, added)).float()
    return [x, torch.randint(0, columns, (rows, added)), values]


def get_init_inputs():
    return []

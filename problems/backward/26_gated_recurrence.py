"""A linear recurrence with a gate for each value."""

import torch
import torch.nn as nn

batch_size = 16
length = 64
dim = 2048


class Model(nn.Module):
    """h[t] = sigmoid(gates[t]) * h[t - 1] + x[t], and h[-1] = 0."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
        """x, gates: (batch_size, length, dim). Returns all h, of the same shape."""
        decay = torch.sigmoid(gates)
        h, found = x[:, 0], []
        found.append(h)
        for t in range(1, self.steps):
            h = decay[:, t] * h + x[:, t]
            found.append(h)
        return torch.stack(found, dim=1)


def get_inputs():
    return [torch.randn(batch_size, length, dim), torch.randn(batch_size, length, dim) + 1]


def get_init_inputs():
    return [length]

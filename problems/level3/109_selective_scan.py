"""State-space scan whose step sizes and projections depend on the input, as in Mamba: a recurrence."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8
length = 64
channels = 2048
state_size = 16


class Model(nn.Module):
    """h = exp(step * A) h + step * B x, y = C h + D x, for every channel with its own small state."""

    def __init__(self, length: int, channels: int, state_size: int) -> None:
        super().__init__()
        self.length = length
        self.log_rate = nn.Parameter(torch.rand(channels, state_size) * 3 - 1)
        self.skip = nn.Parameter(torch.randn(channels))

    def forward(
        self, x: torch.Tensor, step: torch.Tensor, enter: torch.Tensor, leave: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x and step: (batch_size, length, channels); enter and leave: (batch_size, length, state_size).

        state: (batch_size, channels, state_size), from what came before. The step sizes pass through softplus.
        Returns (batch_size, length, channels) and the last state.
        """
        rate = -torch.exp(self.log_rate)
        step = F.softplus(step)
        results = []
        for place in range(self.length):
            size = step[:, place, :, None]
            state = torch.exp(size * rate) * state + size * x[:, place, :, None] * enter[:, place, None, :]
            results.append((state * leave[:, place, None, :]).sum(dim=-1))
        return torch.stack(results, dim=1) + self.skip * x, state


def get_inputs():
    x, step = torch.randn(batch_size, length, channels), torch.randn(batch_size, length, channels) - 1
    enter, leave = (torch.randn(batch_size, length, state_size) for _ in range(2))
    return [x, step, enter, leave, torch.randn(batch_size, channels, state_size)]


def get_init_inputs():
    return [length, channels, state_size]

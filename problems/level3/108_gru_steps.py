"""A gated recurrent unit over a short sequence: a chain of small products."""

import torch
import torch.nn as nn

batch_size = 512
length = 16
in_features = 512
hidden_features = 512


class Model(nn.Module):
    """The input's products are made at once, the state's one after another; returns every state."""

    def __init__(self, in_features: int, hidden_features: int, length: int) -> None:
        super().__init__()
        self.length = length
        self.from_input = nn.Linear(in_features, 3 * hidden_features)
        self.from_hidden = nn.Linear(hidden_features, 3 * hidden_features)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, length, in_features), hidden: (batch_size, hidden_features).

        Returns (batch_size, length, hidden_features).
        """
        entering = self.from_input(x)
        states = []
        for step in range(self.length):
            reset, update, new = entering[:, step].chunk(3, dim=1)
            old_reset, old_update, old_new = self.from_hidden(hidden).chunk(3, dim=1)
            update = torch.sigmoid(update + old_update)
            candidate = torch.tanh(new + torch.sigmoid(reset + old_reset) * old_new)
            hidden = update * hidden + (1 - update) * candidate
            states.append(hidden)
        return torch.stack(states, dim=1)


def get_inputs():
    return [2 * torch.randn(batch_size, length, in_features), torch.randn(batch_size, hidden_features)]


def get_init_inputs():
    return [in_features, hidden_features, length]

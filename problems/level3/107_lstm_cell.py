"""One step of a long short-term memory: two products, four gates, new state."""

import torch
import torch.nn as nn

batch_size = 4096
in_features = 1024
hidden_features = 1024


class Model(nn.Module):
    """Input, forget, cell and output gates in one product each for input and state."""

    def __init__(self, in_features: int, hidden_features: int) -> None:
        super().__init__()
        self.from_input = nn.Linear(in_features, 4 * hidden_features)
        self.from_hidden = nn.Linear(hidden_features, 4 * hidden_features, bias=False)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: (batch_size, in_features), hidden and cell: (batch_size, hidden_features). Returns new hidden and cell."""
        enter, forget, candidate, leave = (self.from_input(x) + self.from_hidden(hidden)).chunk(4, dim=1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
        return torch.sigmoid(leave) * torch.tanh(cell), cell


def get_inputs():
    x, hidden, cell = (torch.randn(batch_size, size) for size in (in_features, hidden_features, hidden_features))
    return [2 * x, 2 * hidden, cell]


def get_init_inputs():
    return [in_features, hidden_features]

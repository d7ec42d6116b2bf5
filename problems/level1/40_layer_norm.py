"""Layer normalisation over everything but the batch: few samples, millions of values in each."""

import torch
import torch.nn as nn

batch_size = 16
features = 64
dim1 = 256
dim2 = 256


class Model(nn.Module):
    """Normalises every sample and applies a weight and a bias per element."""

    def __init__(self, normalized_shape: tuple) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)
        nn.init.uniform_(self.ln.weight, 0.5, 1.5)
        nn.init.normal_(self.ln.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, *normalized_shape). Returns the same shape."""
        return self.ln(x)


def get_inputs():
    # Every channel has a mean and a spread of its own.
    spread = 0.5 + torch.rand(batch_size, features, 1, 1)
    return [torch.randn(batch_size, features, dim1, dim2) * spread + torch.randn(batch_size, features, 1, 1)]


def get_init_inputs():
    return [(features, dim1, dim2)]

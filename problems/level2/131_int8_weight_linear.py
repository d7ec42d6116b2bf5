"""Linear layer whose weights are eight-bit numbers with a scale a row."""

import torch
import torch.nn as nn

batch_size = 64
in_features = 8192
out_features = 8192


class Model(nn.Module):
    """Takes x (q * scale)^T."""

    def forward(self, x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_features), q: (out_features, in_features) of int8, scale: (out_features, 1).

        Returns (batch_size, out_features).
        """
        return x @ (q.to(x.dtype) * scale).T


def get_inputs():
    q = torch.randint(-127, 128, (out_features, in_features), dtype=torch.int8)
    return [torch.randn(batch_size, in_features), q, torch.rand(out_features, 1) / 64]


def get_init_inputs():
    return []

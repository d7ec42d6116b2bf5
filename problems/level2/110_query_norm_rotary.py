"""Every head normalised by its root mean square, weighted, then rotated by its position."""

import torch
import torch.nn as nn

batch_size = 8
length = 2048
heads = 16
head_dim = 128
epsilon = 1e-5


class Model(nn.Module):
    """Normalises and rotates queries, as several recent language models do."""

    def __init__(self, head_dim: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.randn(head_dim))

    def forward(self, query: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """query: (batch_size, length, heads, head_dim); cosine and sine: (length, head_dim / 2). Returns as query."""
        size = torch.rsqrt(query.square().mean(dim=-1, keepdim=True) + self.epsilon)
        first, second = (query * size * self.weight).chunk(2, dim=-1)
        cosine, sine = cosine[:, None, :], sine[:, None, :]
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def get_inputs():
    # Angles as a table of cosines and sines, so that their precision is not part of the problem.
    angle = torch.rand(length, head_dim // 2) * 6.283185

    # Heads of different size, from where epsilon decides to where it does not count.
    size = 10 ** (-3 * torch.rand(batch_size, length, heads, 1))
    return [torch.randn(batch_size, length, heads, head_dim) * size, angle.cos(), angle.sin()]


def get_init_inputs():
    return [head_dim, epsilon]

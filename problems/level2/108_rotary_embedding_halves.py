"""Rotary position embedding of queries and keys; the first half of a head is paired with the second."""

import torch
import torch.nn as nn

batch_size = 8
length = 2048
heads = 32
head_dim = 64
dtype = "float32"


class Model(nn.Module):
    """Rotates every pair (first half, second half) of a head by the angle of its position and place."""

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """query and key: (batch_size, length, heads, head_dim); cosine and sine: (length, head_dim / 2).

        Returns rotated queries and keys.
        """
        cosine, sine = cosine[:, None, :], sine[:, None, :]
        rotated = []
        for x in (query, key):
            first, second = x.chunk(2, dim=-1)
            rotated.append(torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1))
        return rotated[0], rotated[1]


def get_inputs():
    # Angles as a table of cosines and sines, so that their precision is not part of the problem.
    angle = torch.rand(length, head_dim // 2) * 6.283185

    query, key = (torch.randn(batch_size, length, heads, head_dim).to(getattr(torch, dtype)) for _ in range(2))
    return [query, key, angle.cos().to(getattr(torch, dtype)), angle.sin().to(getattr(torch, dtype))]


def get_init_inputs():
    return []

"""One step of attention over keys and values that are kept as eight-bit numbers, with a scale a token."""

import torch
import torch.nn as nn

batch_size = 32
heads = 8
queries = 4
length = 4096
head_dim = 128


class Model(nn.Module):
    """Takes softmax(q k^T / sqrt(head_dim)) v for several queries a head of the cache."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, k_scale: torch.Tensor, v_scale: torch.Tensor
    ) -> torch.Tensor:
        """q: (batch_size, heads, queries, head_dim) in float16, k and v: (batch_size, heads, length, head_dim) of int8.

        k_scale and v_scale: (batch_size, heads, length) in float16. Returns the shape of q in float16.
        """
        wide = torch.get_default_dtype()
        scores = (q.to(wide) @ k.to(wide).mT) * k_scale.to(wide)[:, :, None] / head_dim**0.5
        weights = torch.softmax(scores, dim=-1) * v_scale.to(wide)[:, :, None]
        return (weights @ v.to(wide)).to(q.dtype)


def get_inputs():
    q = torch.randn(batch_size, heads, queries, head_dim).to(torch.float16)
    k, v = (torch.randint(-127, 128, (batch_size, heads, length, head_dim), dtype=torch.int8) for _ in range(2))
    k_scale, v_scale = ((torch.rand(batch_size, heads, length) / 64 + 0.005).to(torch.float16) for _ in range(2))
    return [q, k, v, k_scale, v_scale]


def get_init_inputs():
    return []

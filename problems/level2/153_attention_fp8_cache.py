"""One step of attention over keys and values that are kept in e4m3, with a scale a head."""

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
        """q: (batch_size, heads, queries, head_dim) in float16, k and v: (batch_size, heads, length, head_dim) in e4m3.

        k_scale and v_scale: (heads,) in float16. Returns the shape of q in float16.
        """
        wide = torch.get_default_dtype()
        keys = k.to(wide) * k_scale.to(wide)[:, None, None]
        scores = q.to(wide) @ keys.mT / head_dim**0.5
        mixed = torch.softmax(scores, dim=-1) @ v.to(wide)
        return (mixed * v_scale.to(wide)[:, None, None]).to(q.dtype)


def get_inputs():
    q = torch.randn(batch_size, heads, queries, head_dim).to(torch.float16)
    k, v = (
        (torch.randn(batch_size, heads, length, head_dim) * 64).to(torch.float8_e4m3fn) for _ in range(2)
    )
    k_scale, v_scale = ((torch.rand(heads) / 64 + 0.01).to(torch.float16) for _ in range(2))
    return [q, k, v, k_scale, v_scale]


def get_init_inputs():
    return []

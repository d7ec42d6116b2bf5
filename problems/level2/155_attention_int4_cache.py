"""One step of attention over keys and values of four bits: keys by channel, values by token, each with an offset."""

import torch
import torch.nn as nn

batch_size = 32
heads = 8
queries = 4
groups = 32
group_size = 128
head_dim = 128


class Model(nn.Module):
    """Takes softmax(q k^T / sqrt(head_dim)) v, where k and v are number * scale + least.

    The cache of "KIVI" (arXiv:2402.02750) at four bits: a scale for each channel of a group of tokens for the keys, and
    for each token for the values.
    """

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        k_scale: torch.Tensor,
        k_least: torch.Tensor,
        v: torch.Tensor,
        v_scale: torch.Tensor,
        v_least: torch.Tensor,
    ) -> torch.Tensor:
        """q: (batch_size, heads, queries, head_dim) in float16.

        k and v: (batch_size, heads, groups * group_size, head_dim / 2) of uint8, the first of two channels in the low
        four bits. k_scale and k_least: (batch_size, heads, groups, head_dim), v_scale and v_least:
        (batch_size, heads, groups * group_size, 1), all in float16. Returns the shape of q in float16.
        """
        wide = torch.get_default_dtype()
        key_codes = torch.stack((k & 15, k >> 4), dim=-1).flatten(3).to(wide).unflatten(2, (-1, group_size))
        keys = (key_codes * k_scale.to(wide)[:, :, :, None] + k_least.to(wide)[:, :, :, None]).flatten(2, 3)
        values = torch.stack((v & 15, v >> 4), dim=-1).flatten(3).to(wide) * v_scale.to(wide) + v_least.to(wide)
        scores = q.to(wide) @ keys.mT / head_dim**0.5
        return (torch.softmax(scores, dim=-1) @ values).to(q.dtype)


def get_inputs():
    length = groups * group_size
    q = torch.randn(batch_size, heads, queries, head_dim).to(torch.float16)
    k, v = (torch.randint(0, 256, (batch_size, heads, length, head_dim // 2), dtype=torch.uint8) for _ in range(2))
    k_scale = torch.rand(batch_size, heads, groups, head_dim) / 4 + 0.1
    v_scale = torch.rand(batch_size, heads, length, 1) / 4 + 0.1
    k_least, v_least = (scale * (8 * torch.rand(scale.shape, device=scale.device) - 12) for scale in (k_scale, v_scale))
    return [q, k, k_scale.half(), k_least.half(), v, v_scale.half(), v_least.half()]


def get_init_inputs():
    return []

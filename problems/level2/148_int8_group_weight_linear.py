"""Linear layer in float16 whose weights are eight-bit numbers with a scale a group."""

import torch
import torch.nn as nn

batch_size = 64
in_groups = 64
out_features = 8192
group_size = 128


class Model(nn.Module):
    """Takes x (q * scale)^T, where only the weights are quantised."""

    def forward(self, x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_groups * group_size) in float16, q: (out_features, in_groups * group_size) of int8.

        scale: (out_features, in_groups) in float16. Returns (batch_size, out_features) in float16.
        """
        wide = torch.get_default_dtype()
        weight = q.to(wide).unflatten(1, (-1, group_size)) * scale.to(wide)[:, :, None]
        return (x.to(wide) @ weight.flatten(1).T).to(x.dtype)


def get_inputs():
    q = torch.randint(-127, 128, (out_features, in_groups * group_size), dtype=torch.int8)
    scale = (torch.rand(out_features, in_groups) / 4096 + 1e-5).to(torch.float16)
    return [torch.randn(batch_size, in_groups * group_size).to(torch.float16), q, scale]


def get_init_inputs():
    return []

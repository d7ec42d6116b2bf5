"""Linear layer in float16 whose weights are four-bit numbers with a scale and a zero point a group."""

import torch
import torch.nn as nn

batch_size = 64
in_groups = 64
out_features = 8192
group_size = 128


class Model(nn.Module):
    """Takes x ((q - zero) * scale)^T; both q and zero are packed two a byte.

    The asymmetric groups of "GPTQ" (arXiv:2210.17323).
    """

    def forward(self, x: torch.Tensor, packed: torch.Tensor, zeros: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """x: (batch_size, in_groups * group_size) in float16.

        packed: (out_features, in_groups * group_size / 2) of uint8, zeros: (out_features, in_groups / 2) of uint8, the
        first of two in the low four bits. scale: (out_features, in_groups) in float16. Returns
        (batch_size, out_features) in float16.
        """
        wide = torch.get_default_dtype()
        q = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1).to(wide)
        zero = torch.stack((zeros & 15, zeros >> 4), dim=-1).flatten(1).to(wide)
        weight = (q.unflatten(1, (-1, group_size)) - zero[:, :, None]) * scale.to(wide)[:, :, None]
        return (x.to(wide) @ weight.flatten(1).T).to(x.dtype)


def get_inputs():
    packed = torch.randint(0, 256, (out_features, in_groups * group_size // 2), dtype=torch.uint8)
    zeros = torch.randint(0, 256, (out_features, in_groups // 2), dtype=torch.uint8)
    scale = (torch.rand(out_features, in_groups) / 256 + 1e-4).to(torch.float16)
    return [torch.randn(batch_size, in_groups * group_size).to(torch.float16), packed, zeros, scale]


def get_init_inputs():
    return []

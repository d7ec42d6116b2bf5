"""Turns eight-bit values with scales along rows into their transpose, with scales along the rows of that."""

import torch
import torch.nn as nn

tiles = 64
columns = 8192
group_size = 128


class Model(nn.Module):
    """Dequantises, transposes, and quantises to e4m3 again so that each group's largest magnitude becomes 448.

    The backward pass of "DeepSeek-V3 Technical Report" (arXiv:2412.19437), section 3.5.2, needs 1 x 128 groups of
    activations as 128 x 1 groups.
    """

    def forward(self, codes: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """codes: (tiles * group_size, columns) in e4m3, scale: (tiles * group_size, columns / group_size).

        Returns e4m3 (columns, tiles * group_size), and scales (columns, tiles).
        """
        values = codes.to(scale.dtype).unflatten(1, (-1, group_size)) * scale[:, :, None]
        turned = values.flatten(1).T.unflatten(1, (-1, group_size))
        largest = turned.abs().amax(dim=2, keepdim=True)
        turned_scale = largest / 448
        turned_codes = (turned / turned_scale).to(torch.float8_e4m3fn)
        return turned_codes.flatten(1).contiguous(), turned_scale.flatten(1).contiguous()


def get_inputs():
    codes = (torch.randn(tiles * group_size, columns) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    return [codes, torch.rand(tiles * group_size, columns // group_size) / 16 + 1e-3]


def get_init_inputs():
    return []

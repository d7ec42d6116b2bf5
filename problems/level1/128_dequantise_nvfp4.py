"""Turns NVFP4 back into values: e2m1, two a byte, with e4m3 scales and one scale of the tensor."""

import torch
import torch.nn as nn

rows = 8192
blocks = 512
block_size = 16


class Model(nn.Module):
    """Takes the number of e2m1 times its block's scale times the tensor's.

    NVIDIA, "Introducing NVFP4 for Efficient and Accurate Low-Precision Inference" (2025). The numbers of e2m1 are 0,
    0.5, 1, 1.5, 2, 3, 4 and 6, by rising code; the sign is bit 3.
    """

    def forward(self, packed: torch.Tensor, scale: torch.Tensor, tensor_scale: torch.Tensor) -> torch.Tensor:
        """packed: (rows, blocks * block_size / 2) of uint8, the first of two values in the low four bits.

        scale: (rows, blocks) in e4m3, tensor_scale: (1,). Returns (rows, blocks * block_size).
        """
        numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=tensor_scale.dtype, device=packed.device)
        codes = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1).int()
        values = numbers[codes & 7] * (1 - codes // 8 * 2)
        blocked = values.unflatten(1, (-1, block_size)) * scale.to(tensor_scale.dtype)[:, :, None]
        return (blocked * tensor_scale).flatten(1)


def get_inputs():
    packed = torch.randint(0, 256, (rows, blocks * block_size // 2), dtype=torch.uint8)
    scale = (torch.rand(rows, blocks) * 400 + 1).to(torch.float8_e4m3fn)
    return [packed, scale, torch.rand(1) / 64 + 1e-3]


def get_init_inputs():
    return []

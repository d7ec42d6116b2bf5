"""Quantises blocks of 16 values to NVFP4: e2m1, two a byte, with e4m3 scales and one scale of the tensor."""

import torch
import torch.nn as nn

rows = 4096
blocks = 512
block_size = 16


class Model(nn.Module):
    """Scales every block so that its largest magnitude becomes 6, by a scale that is itself rounded to e4m3.

    NVIDIA, "Introducing NVFP4 for Efficient and Accurate Low-Precision Inference" (2025). The numbers of e2m1 are 0,
    0.5, 1, 1.5, 2, 3, 4 and 6, by rising code; the sign is bit 3. Ties go to the even code. The tensor's scale is
    given, as after calibration. With x in float16, division in float32 leaves one right code for every value.
    """

    def forward(self, x: torch.Tensor, tensor_scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: (rows, blocks * block_size) in float16, tensor_scale: (1,), a power of two.

        Returns codes (rows, blocks * block_size / 2), the first of two values in the low four bits, and scales
        (rows, blocks) in e4m3, which count in units of the tensor's.
        """
        blocked = x.to(tensor_scale.dtype).unflatten(1, (-1, block_size))
        exact = blocked.abs().amax(dim=2, keepdim=True) / 6 / tensor_scale
        scale = exact.clamp(max=448).to(torch.float8_e4m3fn)
        scaled = (blocked / (scale.to(tensor_scale.dtype) * tensor_scale)).flatten(1)
        size = scaled.abs()
        low = (size > 0.25).int() + (size >= 0.75).int() + (size > 1.25).int() + (size >= 1.75).int()
        code = low + (size > 2.5).int() + (size >= 3.5).int() + (size > 5).int() + 8 * (scaled < 0).int()
        packed = code[:, 0::2] + 16 * code[:, 1::2]
        return packed.to(torch.uint8), scale.flatten(1)


def get_inputs():
    size = torch.exp2(6 * torch.rand(rows, blocks, 1) - 3)
    x = (torch.randn(rows, blocks, block_size) * size).flatten(1).to(torch.float16)
    return [x, torch.exp2(torch.randint(-6, -3, (1,)).float())]


def get_init_inputs():
    return []

"""Linear layer in NVFP4: activations are quantised, weights are packed two a byte already."""

import torch
import torch.nn as nn

batch_size = 2048
in_blocks = 256
out_features = 4096
block_size = 16


class Model(nn.Module):
    """Quantises x to e2m1 with e4m3 scales, and multiplies by weights of the same format.

    NVIDIA, "Introducing NVFP4 for Efficient and Accurate Low-Precision Inference" (2025). A block's scale makes its
    largest magnitude 6. The numbers of e2m1 are 0, 0.5, 1, 1.5, 2, 3, 4 and 6, by rising code; the sign is bit 3.
    Ties go to the even code. The scales of the tensors are given.
    """

    def forward(
        self, x: torch.Tensor, x_scale: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, w_scale: torch.Tensor
    ) -> torch.Tensor:
        """x: (batch_size, in_blocks * block_size) in bfloat16; x_scale and w_scale: (1,) in bfloat16.

        packed: (out_features, in_blocks * block_size / 2) of uint8, the first of two values in the low four bits.
        scale: (out_features, in_blocks) in e4m3. Returns (batch_size, out_features) in bfloat16.
        """
        wide = torch.get_default_dtype()
        blocked = x.to(wide).unflatten(1, (-1, block_size))
        x_scales = (blocked.abs().amax(dim=2, keepdim=True) / 6 / x_scale.to(wide)).to(torch.float8_e4m3fn).to(wide)
        scaled = blocked / (x_scales * x_scale.to(wide))
        size = scaled.abs()
        fine = torch.where(size < 2, torch.round(size * 2) / 2, torch.round(size))
        rounded = torch.where(size < 4, fine, torch.round(size / 2) * 2) * scaled.sign()
        activations = (rounded * x_scales).flatten(1)
        numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=wide, device=x.device)
        nibbles = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1).int()
        values = (numbers[nibbles & 7] * (1 - nibbles // 8 * 2)).unflatten(1, (-1, block_size))
        product = activations @ (values * scale.to(wide)[:, :, None]).flatten(1).T
        return (product * (x_scale.to(wide) * w_scale.to(wide))).to(x.dtype)


def get_inputs():
    size = torch.exp2(4 * torch.rand(batch_size, in_blocks, 1) - 2)
    x = (torch.randn(batch_size, in_blocks, block_size) * size).flatten(1).to(torch.bfloat16)
    x_scale = (torch.rand(1) / 32 + 1 / 64).to(torch.bfloat16)
    packed = torch.randint(0, 256, (out_features, in_blocks * block_size // 2), dtype=torch.uint8)
    scale = (torch.rand(out_features, in_blocks) * 400 + 1).to(torch.float8_e4m3fn)
    return [x, x_scale, packed, scale, (torch.rand(1) / 8192 + 1e-5).to(torch.bfloat16)]


def get_init_inputs():
    return []

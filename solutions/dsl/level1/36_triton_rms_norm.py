"""RMS norm over the second dimension in Triton: a program holds all features of a few pixels."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x, y, features, pixels, epsilon, FEATURES: tl.constexpr, PIXELS: tl.constexpr):
    sample = tl.program_id(1).to(tl.int64) * features * pixels
    columns = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    rows = tl.arange(0, FEATURES)
    places = sample + rows[:, None] * pixels + columns[None, :]
    inside = (rows[:, None] < features) & (columns[None, :] < pixels)
    values = tl.load(x + places, mask=inside, other=0.0)
    size = tl.sqrt(tl.sum(values * values, axis=0) / features + epsilon)
    tl.store(y + places, values / size[None, :], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        features, pixels = x.shape[1], x.shape[2] * x.shape[3]
        grid = (triton.cdiv(pixels, 64), x.shape[0])
        rms_norm_kernel[grid](x, y, features, pixels, self.eps, FEATURES=triton.next_power_of_2(features), PIXELS=64)
        return y

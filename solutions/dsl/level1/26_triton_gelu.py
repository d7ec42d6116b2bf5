"""Exact GELU in Triton: one element-wise pass; the block size is chosen by autotuning."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (512, 1024, 2048)], key=["count"])
@triton.jit
def gelu_kernel(x, y, count, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    values = tl.load(x + places, mask=inside, other=0.0)
    tl.store(y + places, 0.5 * values * (1.0 + tl.erf(values * 0.7071067811865476)), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        gelu_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
        return y

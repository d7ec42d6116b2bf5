"""Bias, GELU, scale and residual in Triton: one program a piece of a row, everything read and written once."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_gelu_kernel(x, residual, bias, scale, y, features, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * features
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < features
    values = tl.load(x + row + columns, mask=inside, other=0.0) + tl.load(bias + columns, mask=inside, other=0.0)
    values = 0.5 * values * (1.0 + tl.erf(values * 0.7071067811865476))
    values *= tl.load(scale + columns, mask=inside, other=0.0)
    tl.store(y + row + columns, values + tl.load(residual + row + columns, mask=inside, other=0.0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features: int, dtype: str) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features, dtype=getattr(torch, dtype)))
        self.scale = nn.Parameter(torch.randn(features, dtype=getattr(torch, dtype)))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        x, residual = x.contiguous(), residual.contiguous()
        y = torch.empty_like(x)
        rows, features = x.shape
        grid = (rows, triton.cdiv(features, 1024))
        bias_gelu_kernel[grid](x, residual, self.bias, self.scale, y, features, BLOCK=1024, num_warps=4)
        return y

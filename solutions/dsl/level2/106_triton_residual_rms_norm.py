"""Residual addition and RMS norm in Triton: one program a row, read once, both results written."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def residual_norm_kernel(x, residual, weight, y, total, features, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * features
    columns = tl.arange(0, BLOCK)
    inside = columns < features
    values = tl.load(x + row + columns, mask=inside, other=0.0)
    values += tl.load(residual + row + columns, mask=inside, other=0.0)
    tl.store(total + row + columns, values, mask=inside)
    size = 1.0 / tl.sqrt(tl.sum(values * values, axis=0) / features + epsilon)
    scale = tl.load(weight + columns, mask=inside, other=0.0)
    tl.store(y + row + columns, values * size * scale, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features: int, epsilon: float, dtype: str) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.randn(features, dtype=getattr(torch, dtype)))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = x.contiguous(), residual.contiguous()
        y, total = torch.empty_like(x), torch.empty_like(x)
        rows, features = x.shape
        block = triton.next_power_of_2(features)
        residual_norm_kernel[(rows,)](
            x, residual, self.weight, y, total, features, self.epsilon, BLOCK=block, num_warps=8
        )
        return y, total

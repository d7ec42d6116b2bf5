"""Softmax of long rows in Triton: maximum and sum in one pass, the quotients in a second one."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * length
    peaks = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, length, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        values = tl.load(x + row + columns, mask=columns < length, other=float("-inf"))
        higher = tl.maximum(peaks, values)
        known = higher > float("-inf")
        sums = tl.where(known, sums * tl.exp(peaks - higher) + tl.exp(values - higher), 0.0)
        peaks = higher
    peak = tl.max(peaks, axis=0)
    total = tl.sum(sums * tl.exp(peaks - peak), axis=0)
    for start in range(0, length, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        values = tl.load(x + row + columns, mask=columns < length, other=0.0)
        tl.store(y + row + columns, tl.exp(values - peak) / total, mask=columns < length)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=2048, num_warps=8)
        return y

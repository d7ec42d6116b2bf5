"""Sum over the middle dimension in Triton: a program adds whole tiles of rows, then folds its tile."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, y, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    sample = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        total += tl.load(x + sample * rows * columns + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(y + sample * columns + column, tl.sum(total, axis=0), mask=column < columns)


class ModelNew(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.movedim(self.dim, 1).contiguous()
        batch, rows, columns = x.shape
        y = torch.empty((batch, 1, columns), dtype=x.dtype, device=x.device)
        sum_kernel[(triton.cdiv(columns, 128), batch)](x, y, rows, columns, ROWS=16, COLUMNS=128, num_warps=4)
        return y.movedim(1, self.dim)

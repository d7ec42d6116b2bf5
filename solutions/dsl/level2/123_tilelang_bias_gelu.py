"""Bias, GELU, scale and residual in TileLang: one pass over a piece of a row."""

import tilelang
import tilelang.language as T
import torch
import torch.nn as nn


@tilelang.jit
def bias_gelu(rows, features, piece=1024, threads=256):
    @T.prim_func
    def bias_gelu_tile(
        x: T.Tensor((rows, features), "float32"),
        residual: T.Tensor((rows, features), "float32"),
        bias: T.Tensor((features,), "float32"),
        scale: T.Tensor((features,), "float32"),
        y: T.Tensor((rows, features), "float32"),
    ):
        with T.Kernel(T.ceildiv(features, piece), rows, threads=threads) as (block, row):
            for place in T.Parallel(piece):
                if block * piece + place < features:
                    value = x[row, block * piece + place] + bias[block * piece + place]
                    y[row, block * piece + place] = residual[row, block * piece + place] + scale[
                        block * piece + place
                    ] * (0.5 * value * (1.0 + T.erf(value * 0.7071067811865476)))

    return bias_gelu_tile


class ModelNew(nn.Module):
    def __init__(self, features: int, dtype: str) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features, dtype=getattr(torch, dtype)))
        self.scale = nn.Parameter(torch.randn(features, dtype=getattr(torch, dtype)))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        x, residual = x.contiguous(), residual.contiguous()
        y = torch.empty_like(x)
        bias_gelu(*x.shape)(x, residual, self.bias.detach(), self.scale.detach(), y)
        return y

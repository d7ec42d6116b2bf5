"""RMS norm over the second dimension in TileLang: a block holds all features of a few pixels."""

import tilelang
import tilelang.language as T
import torch
import torch.nn as nn


@tilelang.jit
def rms_norm(samples, features, pixels, epsilon, piece=64, threads=128):
    @T.prim_func
    def rms_norm_tile(
        x: T.Tensor((samples, features, pixels), "float32"), y: T.Tensor((samples, features, pixels), "float32")
    ):
        with T.Kernel(T.ceildiv(pixels, piece), samples, threads=threads) as (block, sample):
            values = T.alloc_shared((features, piece), "float32")
            squares = T.alloc_fragment((piece,), "float32")
            T.copy(x[sample, 0, block * piece], values)
            T.clear(squares)
            for feature in T.serial(features):
                for pixel in T.Parallel(piece):
                    squares[pixel] += values[feature, pixel] * values[feature, pixel]
            for pixel in T.Parallel(piece):
                squares[pixel] = T.sqrt(squares[pixel] / features + epsilon)
            for feature in T.serial(features):
                for pixel in T.Parallel(piece):
                    y[sample, feature, block * piece + pixel] = values[feature, pixel] / squares[pixel]

    return rms_norm_tile


class ModelNew(nn.Module):
    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        shape = (x.shape[0], x.shape[1], x.shape[2] * x.shape[3])
        rms_norm(*shape, self.eps)(x.view(shape), y.view(shape))
        return y

"""Bias, GELU, scale and residual in CuTe DSL: one thread an element, everything in one pass."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def bias_gelu_kernel(
    x: cute.Tensor,
    residual: cute.Tensor,
    bias: cute.Tensor,
    scale: cute.Tensor,
    y: cute.Tensor,
    features: cutlass.Int32,
):
    thread, _, _ = cute.arch.thread_idx()
    piece, row, _ = cute.arch.block_idx()
    feature = piece * THREADS + thread
    if feature < features:
        place = row * features + feature
        value = x[place] + bias[feature]
        value = 0.5 * value * (1.0 + cute.math.erf(value * 0.7071067811865476))
        y[place] = residual[place] + scale[feature] * value


@cute.jit
def bias_gelu(
    x: cute.Tensor,
    residual: cute.Tensor,
    bias: cute.Tensor,
    scale: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    features: cutlass.Int32,
    queue: cuda.CUstream,
):
    grid = [cute.ceil_div(features, THREADS), rows, 1]
    bias_gelu_kernel(x, residual, bias, scale, y, features).launch(grid=grid, block=[THREADS, 1, 1], stream=queue)


def view(tensor: torch.Tensor) -> cute.Tensor:
    """One dimension of dynamic length, so that a compiled kernel serves every size."""
    return from_dlpack(tensor.detach().view(-1)).mark_layout_dynamic()


def stream() -> cuda.CUstream:
    return cuda.CUstream(torch.cuda.current_stream().cuda_stream)


COMPILED = {}


def call(launch, *arguments) -> None:
    """Compile the launcher at its first call; later calls only launch."""
    arguments = (*arguments, stream())
    if launch not in COMPILED:
        COMPILED[launch] = cute.compile(launch, *arguments)
    COMPILED[launch](*arguments)


class ModelNew(nn.Module):
    def __init__(self, features: int, dtype: str) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features, dtype=getattr(torch, dtype)))
        self.scale = nn.Parameter(torch.randn(features, dtype=getattr(torch, dtype)))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        x, residual = x.contiguous(), residual.contiguous()
        y = torch.empty_like(x)
        tensors = [view(each) for each in (x, residual, self.bias, self.scale, y)]
        call(bias_gelu, *tensors, cutlass.Int32(x.shape[0]), cutlass.Int32(x.shape[1]))
        return y

"""Residual addition and RMS norm in CuTe DSL: one block a row, both results written."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass.cute.runtime import from_dlpack

THREADS = 256
WARPS = THREADS // 32


@cute.jit
def block_sum(value: cutlass.Float32, parts: cute.Tensor) -> cutlass.Float32:
    """Sum over a block: within warps by shuffles, across warps through shared memory."""
    lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
    for step in cutlass.range_constexpr(5):
        value += cute.arch.shuffle_sync_bfly(value, offset=1 << step)
    if lane == 0:
        parts[warp] = value
    cute.arch.sync_threads()
    total = cutlass.Float32(0.0)
    for each in cutlass.range_constexpr(WARPS):
        total += parts[each]
    cute.arch.sync_threads()
    return total


@cute.kernel
def residual_norm_kernel(
    x: cute.Tensor,
    residual: cute.Tensor,
    weight: cute.Tensor,
    y: cute.Tensor,
    total: cute.Tensor,
    features: cutlass.Int32,
    epsilon: cutlass.Float32,
):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    parts = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(WARPS))
    first = row * features
    squares = cutlass.Float32(0.0)
    for feature in range(thread, features, THREADS):
        value = x[first + feature] + residual[first + feature]
        total[first + feature] = value
        squares += value * value
    mean = block_sum(squares, parts) / cutlass.Float32(features)
    size = 1.0 / cute.math.sqrt(mean + epsilon)
    for feature in range(thread, features, THREADS):
        y[first + feature] = (x[first + feature] + residual[first + feature]) * size * weight[feature]


@cute.jit
def residual_norm(
    x: cute.Tensor,
    residual: cute.Tensor,
    weight: cute.Tensor,
    y: cute.Tensor,
    total: cute.Tensor,
    rows: cutlass.Int32,
    features: cutlass.Int32,
    epsilon: cutlass.Float32,
    queue: cuda.CUstream,
):
    residual_norm_kernel(x, residual, weight, y, total, features, epsilon).launch(
        grid=[rows, 1, 1], block=[THREADS, 1, 1], stream=queue
    )


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
    def __init__(self, features: int, epsilon: float, dtype: str) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.randn(features, dtype=getattr(torch, dtype)))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = x.contiguous(), residual.contiguous()
        y, total = torch.empty_like(x), torch.empty_like(x)
        tensors = [view(each) for each in (x, residual, self.weight, y, total)]
        sizes = (cutlass.Int32(x.shape[0]), cutlass.Int32(x.shape[1]))
        call(residual_norm, *tensors, *sizes, cutlass.Float32(self.epsilon))
        return y, total

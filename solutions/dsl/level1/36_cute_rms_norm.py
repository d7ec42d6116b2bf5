"""RMS norm over the second dimension in CuTe DSL: one thread a pixel, the features in two passes."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass.cute.runtime import from_dlpack

THREADS = 128


@cute.kernel
def rms_norm_kernel(
    x: cute.Tensor, y: cute.Tensor, features: cutlass.Int32, pixels: cutlass.Int32, epsilon: cutlass.Float32
):
    thread, _, _ = cute.arch.thread_idx()
    piece, sample, _ = cute.arch.block_idx()
    pixel = piece * THREADS + thread
    if pixel < pixels:
        first = sample * features * pixels + pixel
        total = cutlass.Float32(0.0)
        for feature in range(features):
            value = x[first + feature * pixels]
            total += value * value
        size = cute.math.sqrt(total / cutlass.Float32(features) + epsilon)
        for feature in range(features):
            y[first + feature * pixels] = x[first + feature * pixels] / size


@cute.jit
def rms_norm(
    x: cute.Tensor,
    y: cute.Tensor,
    samples: cutlass.Int32,
    features: cutlass.Int32,
    pixels: cutlass.Int32,
    epsilon: cutlass.Float32,
    queue: cuda.CUstream,
):
    grid = [cute.ceil_div(pixels, THREADS), samples, 1]
    rms_norm_kernel(x, y, features, pixels, epsilon).launch(grid=grid, block=[THREADS, 1, 1], stream=queue)


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
    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        samples, features, pixels = x.shape[0], x.shape[1], x.shape[2] * x.shape[3]
        sizes = (cutlass.Int32(samples), cutlass.Int32(features), cutlass.Int32(pixels))
        call(rms_norm, view(x), view(y), *sizes, cutlass.Float32(self.eps))
        return y

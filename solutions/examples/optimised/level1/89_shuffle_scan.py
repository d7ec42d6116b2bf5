"""One block a row, a thousand values at a time: each thread adds four in registers, a warp scans its lanes by
shuffles, the warps' totals are scanned in shared memory, and the running total is carried to the next step."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int EACH = 4;

__device__ float warp_scan(float value, int lane) {
    for (int offset = 1; offset < 32; offset *= 2) {
        float below = __shfl_up_sync(0xffffffffu, value, offset);
        if (lane >= offset) value += below;
    }
    return value;
}

__global__ void __launch_bounds__(THREADS) cumsum_kernel(const float* x, float* y, int64_t length) {
    __shared__ float totals[WARPS];
    const float* row = x + blockIdx.x * length;
    float* out = y + blockIdx.x * length;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float carry = 0.0f;
    for (int64_t base = 0; base < length; base += THREADS * EACH) {
        const int64_t first = base + threadIdx.x * EACH;
        float values[EACH];
        float sum = 0.0f;
        for (int j = 0; j < EACH; ++j) {
            sum += first + j < length ? row[first + j] : 0.0f;
            values[j] = sum;
        }
        const float through_lane = warp_scan(sum, lane);
        if (lane == 31) totals[warp] = through_lane;
        __syncthreads();
        float before = carry + (through_lane - sum);
        float step = 0.0f;
        for (int w = 0; w < WARPS; ++w) {
            if (w < warp) before += totals[w];
            step += totals[w];
        }
        for (int j = 0; j < EACH; ++j)
            if (first + j < length) out[first + j] = before + values[j];
        carry += step;
        __syncthreads();  // totals are read before the next step overwrites them
    }
}

torch::Tensor cumsum_rows(torch::Tensor x) {
    auto y = torch::empty_like(x);
    cumsum_kernel<<<x.size(0), THREADS>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""

module = load_inline(
    name="shuffle_cumsum",
    cpp_sources="torch::Tensor cumsum_rows(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["cumsum_rows"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim != 1:
            raise ValueError("made for rows")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.cumsum_rows(x.contiguous())

"""Sum over the middle one of three dimensions.

Idea: neighbouring threads have neighbouring columns, so that memory is read in its own order, whatever the length of a row;
eight threads share a column, a block has 64 columns, and every thread has eight rows on their way at a time: enough
for the whole GPU even where columns are few. The eight sums meet in shared memory. Rows have odd
lengths here, which rules out wider loads.

Bytes: 4 a value: 8.59 GB at 128 x 4096 x 4095.
Flops: 1 a value.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <algorithm>

constexpr int COLUMNS = 64;   // a block has
constexpr int GROUPS = 8;     // of threads, each with every eighth row
constexpr int EACH = 8;       // rows a thread has on their way at a time

// x is (outer, length, inner). A block: COLUMNS neighbouring columns of one outer index, GROUPS threads a column.
__global__ void __launch_bounds__(COLUMNS * GROUPS) sum_along_kernel(
    const float* __restrict__ x, float* __restrict__ y, int64_t length, int64_t inner, unsigned across) {
    __shared__ float values[GROUPS][COLUMNS];
    const int c = threadIdx.x, g = threadIdx.y;
    const int64_t outer = blockIdx.x / across, column = (int64_t)(blockIdx.x % across) * COLUMNS + c;
    const float* from = x + outer * length * inner + column;
    float sums[2] = {0.0f, 0.0f};
    if (column < inner) {
        int64_t i = g;
        for (; i + (EACH - 1) * GROUPS < length; i += EACH * GROUPS) {
            float v[EACH];
#pragma unroll
            for (int j = 0; j < EACH; ++j) v[j] = __ldcs(from + (i + j * GROUPS) * inner);
#pragma unroll
            for (int j = 0; j < EACH; ++j) sums[j % 2] += v[j];
        }
        for (; i < length; i += GROUPS) sums[0] += from[i * inner];
    }
    values[g][c] = sums[0] + sums[1];
    __syncthreads();
    if (g != 0 || column >= inner) return;
    float all = 0.0f;
    for (int other = 0; other < GROUPS; ++other) all += values[other][c];
    y[outer * inner + column] = all;
}

torch::Tensor sum_along(torch::Tensor x, int64_t dim) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "x: contiguous, float32, on the GPU");
    if (dim < 0) dim += x.dim();
    TORCH_CHECK(dim >= 0 && dim < x.dim() && x.size(dim) > 0, "dim: one of x, not of size zero");
    int64_t outer = 1, inner = 1;
    std::vector<int64_t> sizes;
    for (int64_t d = 0; d < x.dim(); ++d) {
        if (d < dim) outer *= x.size(d);
        if (d > dim) inner *= x.size(d);
        if (d != dim) sizes.push_back(x.size(d));
        else sizes.push_back(1);
    }
    auto y = torch::empty(sizes, x.options());
    if (outer * inner == 0) return y;
    const int64_t across = (inner + COLUMNS - 1) / COLUMNS;
    sum_along_kernel<<<(unsigned)(outer * across), dim3(COLUMNS, GROUPS)>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.size(dim), inner, (unsigned)across);
    return y;
}
"""

module = load_inline(
    name="tuned_sum_along",
    cpp_sources="torch::Tensor sum_along(torch::Tensor x, int64_t dim);",
    cuda_sources=CUDA,
    functions=["sum_along"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.sum_along(x.contiguous(), self.dim)

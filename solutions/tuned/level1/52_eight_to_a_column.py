"""Place of the smallest value along a dimension that is not the innermost one.

Idea: neighbouring threads have neighbouring columns, so that memory is read in its own order, whatever the length of a row;
eight threads share a column, a block has 64 columns, and every thread has eight rows on their way at a time: enough
for the whole GPU even where columns are few. The eight meet in shared memory; of equal values the first
counts. Rows have odd lengths here, which rules out wider loads.

Bytes: 4 a value: 1.07 GB at 64 x 2048 x 2047.
Flops: none; a comparison a value.
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

// Not a number is the smallest, as in torch.argmin.
__device__ bool better(float v, float best) { return v < best || (v != v && best == best); }

// x is (outer, length, inner). A block: COLUMNS neighbouring columns of one outer index, GROUPS threads a column.
__global__ void __launch_bounds__(COLUMNS * GROUPS) argmin_along_kernel(
    const float* __restrict__ x, long long* __restrict__ y, int64_t length, int64_t inner, unsigned across) {
    __shared__ float values[GROUPS][COLUMNS];
    __shared__ int64_t places[GROUPS][COLUMNS];
    const int c = threadIdx.x, g = threadIdx.y;
    const int64_t outer = blockIdx.x / across, column = (int64_t)(blockIdx.x % across) * COLUMNS + c;
    const float* from = x + outer * length * inner + column;
    float best = 0.0f;
    int64_t place = -1;
    if (column < inner) {
        int64_t i = g;
        for (; i + (EACH - 1) * GROUPS < length; i += EACH * GROUPS) {
            float v[EACH];
#pragma unroll
            for (int j = 0; j < EACH; ++j) v[j] = __ldcs(from + (i + j * GROUPS) * inner);
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                if (place < 0 || better(v[j], best)) {
                    best = v[j];
                    place = i + j * GROUPS;
                }
            }
        }
        for (; i < length; i += GROUPS) {
            const float v = from[i * inner];
            if (place < 0 || better(v, best)) {
                best = v;
                place = i;
            }
        }
    }
    values[g][c] = best;
    places[g][c] = place;
    __syncthreads();
    if (g != 0 || column >= inner) return;
    for (int other = 1; other < GROUPS; ++other) {
        const int64_t there = places[other][c];
        if (there < 0) continue;
        const float v = values[other][c];
        if (better(v, best) || (!better(best, v) && there < place)) {
            best = v;
            place = there;
        }
    }
    y[outer * inner + column] = place;
}

torch::Tensor argmin_along(torch::Tensor x, int64_t dim) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "x: contiguous, float32, on the GPU");
    if (dim < 0) dim += x.dim();
    TORCH_CHECK(dim >= 0 && dim < x.dim() && x.size(dim) > 0, "dim: one of x, not of size zero");
    int64_t outer = 1, inner = 1;
    std::vector<int64_t> sizes;
    for (int64_t d = 0; d < x.dim(); ++d) {
        if (d < dim) outer *= x.size(d);
        if (d > dim) inner *= x.size(d);
        if (d != dim) sizes.push_back(x.size(d));
    }
    auto y = torch::empty(sizes, x.options().dtype(torch::kInt64));
    if (outer * inner == 0) return y;
    const int64_t across = (inner + COLUMNS - 1) / COLUMNS;
    argmin_along_kernel<<<(unsigned)(outer * across), dim3(COLUMNS, GROUPS)>>>(
        x.data_ptr<float>(), reinterpret_cast<long long*>(y.data_ptr<int64_t>()), x.size(dim), inner, (unsigned)across);
    return y;
}
"""

module = load_inline(
    name="tuned_argmin_along",
    cpp_sources="torch::Tensor argmin_along(torch::Tensor x, int64_t dim);",
    cuda_sources=CUDA,
    functions=["argmin_along"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.argmin_along(x.contiguous(), self.dim)

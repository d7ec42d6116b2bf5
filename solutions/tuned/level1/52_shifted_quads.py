"""Place of the smallest value along a dimension that is not the innermost one.

Idea: rows have odd lengths here, so that each begins at another distance from a multiple of 16 bytes, and a thread that keeps to
its column can't load more than one value at a time. But every fourth row begins at the same distance: a
warp takes every fourth row, and its lanes load 16 aligned bytes whose columns are shifted by that distance, alike in all of its rows.
The four warps of a block compare what they found in shared memory, each shifted back; of equal values the first counts. A block has
one group of columns more than it has results, because of the shifts.

Bytes: 4 a value: 1.07 GB at 64 x 2048 x 2047.
Flops: none; a comparison a value.
Reached on an H200: 88 % of the speed of light of the reference's work (memory), 290 us.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <algorithm>
#include <cmath>

constexpr int LANES = 32;      // of a warp, each with four neighbouring columns
constexpr int GROUPS = 4;      // warps of a block, each with every fourth row
constexpr int THREADS = LANES * GROUPS;
constexpr int EACH = 8;        // rows that a thread has on their way at a time

// Four values of memory at a multiple of 16 bytes, of which the tensor's `total` values may end within.
__device__ float4 load_safely(const float* x, int64_t at, int64_t total) {
    if (at + 4 <= total) return __ldg(reinterpret_cast<const float4*>(x + at));
    return make_float4(x[at], at + 1 < total ? x[at + 1] : 0.0f, at + 2 < total ? x[at + 2] : 0.0f, 0.0f);
}

// Not a number is the smallest, as in torch.argmin.
__device__ bool better(float v, float best) { return !(v >= best) && best == best; }

// x is (outer, length, inner) and starts at a multiple of 16 bytes. A block: all rows of one outer index, `width` results from
// column strip * width on.
__global__ void __launch_bounds__(THREADS, 8) argmin_along_kernel(
    const float* __restrict__ x, long long* __restrict__ y, int64_t outers, int64_t length, int64_t inner, int across, int width) {
    __shared__ float values[GROUPS][4 * LANES];
    __shared__ int places[GROUPS][4 * LANES];
    __shared__ int shifts[GROUPS];
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const int64_t outer = blockIdx.x / across, strip = blockIdx.x % across, total = outers * length * inner;
    const int64_t first = (outer * length + group) * inner;  // where the first row of this warp starts
    const int shift = (int)(first % 4), rows = (int)length;
    const int64_t column = strip * width - shift + 4 * lane;
    float best[4];
    int place[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) best[c] = INFINITY, place[c] = group;
    auto look = [&](float4 v, int row) {
        const float four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int c = 0; c < 4; ++c)
            if (better(four[c], best[c])) best[c] = four[c], place[c] = row;
    };
    if (column < inner && 4 * lane < width + 4) {
        // The very last row may end within 16 bytes: it is left to the careful loop.
        const int sure = outer == outers - 1 ? rows - 1 : rows;
        int i = group;
        int64_t at = first + column;
        for (; i + (EACH - 1) * GROUPS < sure; i += EACH * GROUPS, at += EACH * GROUPS * inner) {
            float4 v[EACH];
#pragma unroll
            for (int j = 0; j < EACH; ++j) v[j] = __ldg(reinterpret_cast<const float4*>(x + at + j * GROUPS * inner));
#pragma unroll
            for (int j = 0; j < EACH; ++j) look(v[j], i + j * GROUPS);
        }
        for (; i < rows; i += GROUPS, at += GROUPS * inner) look(load_safely(x, at, total), i);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) values[group][4 * lane + c] = best[c], places[group][4 * lane + c] = place[c];
    if (lane == 0) shifts[group] = shift;
    __syncthreads();
    const int64_t results = min((int64_t)width, inner - strip * width);
    for (int c = threadIdx.x; c < results; c += THREADS) {
        float found = values[0][c + shifts[0]];
        int where = places[0][c + shifts[0]];
        for (int g = 1; g < min(GROUPS, rows); ++g) {
            const float v = values[g][c + shifts[g]];
            const int there = places[g][c + shifts[g]];
            if (better(v, found) || (!better(found, v) && there < where)) found = v, where = there;
        }
        y[outer * inner + strip * width + c] = where;
    }
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
    if (reinterpret_cast<uintptr_t>(x.data_ptr<float>()) % 16 != 0) x = x.clone();
    // The fewest blocks across, all with the same width.
    const int64_t widest = 4 * (LANES - 1), across = (inner + widest - 1) / widest, width = ((inner + across - 1) / across + 3) / 4 * 4;
    argmin_along_kernel<<<(unsigned)(outer * across), THREADS>>>(
        x.data_ptr<float>(), reinterpret_cast<long long*>(y.data_ptr<int64_t>()), outer, x.size(dim), inner, (int)across, (int)width);
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

"""Sum over the middle one of three dimensions.

Idea: rows have odd lengths here, so that each begins at another distance from a multiple of 16 bytes, and a thread that keeps to
its column can't load more than one value at a time. But every fourth row begins at the same distance: a
warp takes every fourth row, and its lanes load 16 aligned bytes whose columns are shifted by that distance, alike in all of its rows.
The four warps of a block put their sums together in shared memory, each shifted back. A block has one group of columns more than it
has results, because of the shifts. Rows are divided among blocks too, so that no last round of them leaves
processors idle; a second kernel adds up their parts.

Bytes: 4 a value: 8.59 GB at 128 x 4096 x 4095.
Flops: 1 a value.
Reached on an H200: 100 % of the speed of light of the reference's work (memory), 2.04 ms.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <algorithm>

constexpr int LANES = 32;      // of a warp, each with four neighbouring columns
constexpr int GROUPS = 4;      // warps of a block, each with every fourth row
constexpr int THREADS = LANES * GROUPS;
constexpr int EACH = 8;        // rows that a thread has on their way at a time

// Four values of memory at a multiple of 16 bytes, of which the tensor's `total` values may end within.
__device__ float4 load_safely(const float* x, int64_t at, int64_t total) {
    if (at + 4 <= total) return __ldg(reinterpret_cast<const float4*>(x + at));
    return make_float4(x[at], at + 1 < total ? x[at + 1] : 0.0f, at + 2 < total ? x[at + 2] : 0.0f, 0.0f);
}

__device__ void add(float4& sum, float4 v) { sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w; }

// x is (outer, length, inner) and starts at a multiple of 16 bytes. A block: rows part * share and on of one outer index (`share` is a
// multiple of four), `width` results from column strip * width on, for row (part, outer) of `partial`.
__global__ void __launch_bounds__(THREADS, 8) sum_along_kernel(
    const float* __restrict__ x, float* __restrict__ partial, int64_t outers, int64_t length, int64_t inner, int64_t share,
    int across, int width) {
    __shared__ float4 sums[GROUPS][LANES];
    __shared__ int shifts[GROUPS];
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const int64_t outer = blockIdx.x / across, strip = blockIdx.x % across, total = outers * length * inner;
    const int64_t begin = blockIdx.y * share, end = min(begin + share, length);
    const int64_t first = (outer * length + begin + group) * inner;  // where the first row of this warp starts
    const int shift = (int)(first % 4);
    const int64_t column = strip * width - shift + 4 * lane;
    float4 sum[2] = {};
    if (column < inner && 4 * lane < width + 4) {
        // The very last row may end within 16 bytes: it is left to the careful loop.
        const int64_t sure = outer == outers - 1 && end == length ? end - 1 : end;
        int64_t i = begin + group, at = first + column;
        for (; i + (EACH - 1) * GROUPS < sure; i += EACH * GROUPS, at += EACH * GROUPS * inner) {
            float4 v[EACH];
#pragma unroll
            for (int j = 0; j < EACH; ++j) v[j] = __ldg(reinterpret_cast<const float4*>(x + at + j * GROUPS * inner));
#pragma unroll
            for (int j = 0; j < EACH; ++j) add(sum[j % 2], v[j]);
        }
        for (; i < end; i += GROUPS, at += GROUPS * inner) add(sum[0], load_safely(x, at, total));
    }
    add(sum[0], sum[1]);
    sums[group][lane] = sum[0];
    if (lane == 0) shifts[group] = shift;
    __syncthreads();
    float* to = partial + (blockIdx.y * outers + outer) * inner + strip * width;
    const int64_t results = min((int64_t)width, inner - strip * width);
    for (int c = threadIdx.x; c < results; c += THREADS) {
        float all = 0.0f;
        for (int g = 0; g < GROUPS; ++g) all += reinterpret_cast<const float*>(sums[g])[c + shifts[g]];
        to[c] = all;
    }
}

__global__ void __launch_bounds__(THREADS) add_parts_kernel(const float* __restrict__ partial, float* __restrict__ y, int parts, int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    float all = 0.0f;
    for (int p = 0; p < parts; ++p) all += partial[p * count + i];
    y[i] = all;
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
    const int64_t length = x.size(dim), count = outer * inner;
    if (count == 0) return y;
    if (reinterpret_cast<uintptr_t>(x.data_ptr<float>()) % 16 != 0) x = x.clone();
    // The fewest blocks across, all with the same width; rows in parts of 256 or more, for some sixteen rounds of blocks in all.
    const int64_t widest = 4 * (LANES - 1), across = (inner + widest - 1) / widest, width = ((inner + across - 1) / across + 3) / 4 * 4;
    const int64_t wanted = std::max<int64_t>(1, std::min<int64_t>(132 * 8 * 16 / (outer * across), length / 256));
    const int64_t share = ((length + wanted - 1) / wanted + GROUPS - 1) / GROUPS * GROUPS, parts = (length + share - 1) / share;
    auto partial = parts > 1 ? torch::empty({parts * count}, x.options()) : y;
    sum_along_kernel<<<dim3((unsigned)(outer * across), (unsigned)parts), THREADS>>>(
        x.data_ptr<float>(), partial.data_ptr<float>(), outer, length, inner, share, (int)across, (int)width);
    if (parts > 1)
        add_parts_kernel<<<(unsigned)((count + THREADS - 1) / THREADS), THREADS>>>(
            partial.data_ptr<float>(), y.data_ptr<float>(), (int)parts, count);
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

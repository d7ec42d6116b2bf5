"""Product of a wide matrix and a column.

Idea: the matrix is read once and nothing helps but keeping memory busy; the column (4 MiB) must not be read from the L2 cache
for every row. A block takes eight rows and a part of their length: a thread reads four values of the column and uses
them for the eight rows, whose loads are all on their way at once, 16 bytes each. Parts are added up by a second kernel in a
fixed order, so that there are thousands of blocks for any shape.

Bytes: 4 a value of the matrix, 8.59 GB at 2048 x 1048576, and an eighth of that from the L2 cache.
Flops: 2 a value.
Reached on an H200: 104 % of the speed of light of the reference's work (memory), 1.97 ms.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <algorithm>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int ROWS = 8;
constexpr unsigned ALL = 0xffffffffu;

__device__ float dot(float a, float b) { return a * b; }
__device__ float dot(float4 a, float4 b) { return (a.x * b.x + a.y * b.y) + (a.z * b.z + a.w * b.w); }

// Rows are `width` groups of type V. Block (i, j): part i of the rows from ROWS * j on, `part` groups long.
template <class V>
__global__ void __launch_bounds__(THREADS) part_kernel(
    const V* __restrict__ a, const V* __restrict__ b, float* __restrict__ partial, int64_t rows, int64_t width, int64_t part) {
    __shared__ float sums[ROWS][WARPS];
    const int64_t first = (int64_t)blockIdx.y * ROWS;
    const int64_t begin = blockIdx.x * part, end = min(begin + part, width);
    const V* from[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) from[r] = a + min(first + r, rows - 1) * width;  // the last row again beyond the end
    float sum[ROWS] = {};
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        V v[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) v[r] = __ldcs(from[r] + i);
        const V x = __ldg(b + i);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) sum[r] += dot(v[r], x);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum[r] += __shfl_xor_sync(ALL, sum[r], offset);
        if (threadIdx.x % 32 == 0) sums[r][threadIdx.x / 32] = sum[r];
    }
    __syncthreads();
    if (threadIdx.x < ROWS && first + threadIdx.x < rows) {
        float all = 0.0f;
        for (int w = 0; w < WARPS; ++w) all += sums[threadIdx.x][w];
        partial[(first + threadIdx.x) * gridDim.x + blockIdx.x] = all;
    }
}

// A warp a row.
__global__ void __launch_bounds__(THREADS) total_kernel(const float* __restrict__ partial, float* __restrict__ y, int64_t rows, int parts) {
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int p = threadIdx.x % 32; p < parts; p += 32) sum += partial[row * parts + p];
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL, sum, offset);
    if (threadIdx.x % 32 == 0) y[row] = sum;
}

torch::Tensor matrix_vector(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_cuda() && a.dim() == 2 && a.scalar_type() == torch::kFloat32 && a.is_contiguous(),
                "A: a contiguous matrix of float32 on the GPU");
    TORCH_CHECK(b.numel() == a.size(1) && b.scalar_type() == torch::kFloat32 && b.is_contiguous(),
                "B: float32, (K, 1), for A of (M, K)");
    const int64_t rows = a.size(0), length = a.size(1);
    auto y = torch::empty({rows, 1}, a.options());
    if (rows == 0) return y;
    const float* from = a.data_ptr<float>();
    const float* column = b.data_ptr<float>();
    const bool wide = length % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0
                      && reinterpret_cast<uintptr_t>(column) % 16 == 0;
    const int64_t width = wide ? length / 4 : length, down = (rows + ROWS - 1) / ROWS;
    TORCH_CHECK(down < 65536, "at most 524280 rows");
    // Some 32 blocks a processor, each with four steps or more.
    const int64_t wanted = std::max<int64_t>(1, 132 * 32 / down);
    const int64_t part = std::max<int64_t>((width + wanted - 1) / wanted, 4 * THREADS);
    const int64_t parts = std::max<int64_t>(1, (width + part - 1) / part);
    auto partial = torch::empty({rows, parts}, a.options());
    const dim3 blocks((unsigned)parts, (unsigned)down);
    if (wide)
        part_kernel<float4><<<blocks, THREADS>>>(reinterpret_cast<const float4*>(from), reinterpret_cast<const float4*>(column),
                                                 partial.data_ptr<float>(), rows, width, part);
    else
        part_kernel<float><<<blocks, THREADS>>>(from, column, partial.data_ptr<float>(), rows, width, part);
    total_kernel<<<(unsigned)((rows + WARPS - 1) / WARPS), THREADS>>>(partial.data_ptr<float>(), y.data_ptr<float>(), rows, (int)parts);
    return y;
}
"""

module = load_inline(
    name="tuned_matrix_vector",
    cpp_sources="torch::Tensor matrix_vector(torch::Tensor a, torch::Tensor b);",
    cuda_sources=CUDA,
    functions=["matrix_vector"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return module.matrix_vector(A.contiguous(), B.contiguous())

"""One row times a matrix of packed four-bit numbers with a scale a group.

Idea: a warp has a row of the matrix and reads it 16 bytes a lane (32 numbers), four loads on their way at a time; no unpacked
weight is ever written. A byte's two numbers become floats by adding their bits to those of 2^23, which costs a bit operation and
a subtraction each. The sum of a group's numbers, not each number, is multiplied by the group's scale: a lane's 32 numbers
are in one group. The vector comes from shared memory, laid out so that lanes read neighbouring words of different banks. The
reference writes the unpacked numbers as bytes, as floats, less eight, and scaled, each of them to memory.

Bytes: half a byte a weight and 4 a group and a scale: 71 MB at 16384 x 8192.
Flops: 2 a weight, and as many to unpack it.
Reached on an H200: 35 % of the speed of light of the reference's work (memory), 47.9 us.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <algorithm>

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;
constexpr int EACH = 4;  // loads of 16 bytes a lane has on their way at a time
constexpr unsigned ALL = 0xffffffffu;

// Four bits as a float, less eight.
__device__ float less_eight(unsigned bits) { return __uint_as_float(0x4b000000u | (bits & 15u)) - 8388616.0f; }

// A lane's 32 numbers times their part of the vector, which is stored as float4 i of every lane's part side by side:
// part p has its float4 i at vector[(p / 32 * 8 + i) * 32 + p % 32].
__device__ float dot_32(uint4 packed, const float4* vector, int p) {
    const float4* mine = vector + (p / 32 * 8) * 32 + p % 32;
    const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
    float sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const unsigned bits = words[w] >> (16 * half);
            const float4 v = mine[(w * 2 + half) * 32];
            sum[0] += less_eight(bits) * v.x + less_eight(bits >> 4) * v.y;
            sum[1] += less_eight(bits >> 8) * v.z + less_eight(bits >> 12) * v.w;
        }
    }
    return sum[0] + sum[1];
}

// Rows of `pieces` times 16 bytes; a group has `group_pieces` of them.
__global__ void __launch_bounds__(THREADS, 2) wide_kernel(
    const float* __restrict__ x, const uint4* __restrict__ packed, const float* __restrict__ scale, float* __restrict__ y,
    int rows, int pieces, int group_pieces) {
    extern __shared__ float4 vector[];
    const int lane = threadIdx.x % 32, groups = pieces / group_pieces;
    const float4* fours = reinterpret_cast<const float4*>(x);
    for (int i = threadIdx.x; i < pieces * 8; i += THREADS) {
        const int p = i / 8;
        vector[(p / 32 * 8 + i % 8) * 32 + p % 32] = fours[i];
    }
    __syncthreads();
    for (int row = blockIdx.x * WARPS + threadIdx.x / 32; row < rows; row += gridDim.x * WARPS) {
        const uint4* from = packed + (int64_t)row * pieces;
        const float* scales = scale + (int64_t)row * groups;
        float sum = 0.0f;
        for (int base = lane; base < pieces; base += EACH * 32) {
            uint4 v[EACH];
            float by[EACH];
#pragma unroll
            for (int j = 0; j < EACH; ++j)
                if (base + j * 32 < pieces) {
                    v[j] = __ldcs(from + base + j * 32);
                    by[j] = __ldg(scales + (base + j * 32) / group_pieces);
                }
#pragma unroll
            for (int j = 0; j < EACH; ++j)
                if (base + j * 32 < pieces) sum += by[j] * dot_32(v[j], vector, base + j * 32);
        }
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL, sum, offset);
        if (lane == 0) y[row] = sum;
    }
}

// Groups of any even size: a byte a lane.
__global__ void __launch_bounds__(THREADS) narrow_kernel(
    const float* __restrict__ x, const unsigned char* __restrict__ packed, const float* __restrict__ scale, float* __restrict__ y,
    int rows, int bytes, int group_bytes) {
    const int lane = threadIdx.x % 32, groups = bytes / group_bytes;
    const int row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = lane; i < bytes; i += 32) {
        const unsigned bits = packed[(int64_t)row * bytes + i];
        const float of_pair = less_eight(bits) * x[2 * i] + less_eight(bits >> 4) * x[2 * i + 1];
        sum += scale[(int64_t)row * groups + i / group_bytes] * of_pair;
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL, sum, offset);
    if (lane == 0) y[row] = sum;
}

torch::Tensor int4_product(torch::Tensor x, torch::Tensor packed, torch::Tensor scale) {
    TORCH_CHECK(packed.is_cuda() && packed.dim() == 3 && packed.scalar_type() == torch::kUInt8 && packed.is_contiguous(),
                "packed: contiguous, uint8, (out, groups, group_size / 2), on the GPU");
    const int64_t rows = packed.size(0), groups = packed.size(1), group_bytes = packed.size(2), bytes = groups * group_bytes;
    TORCH_CHECK(x.numel() == 2 * bytes && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "x: float32, one value a number");
    TORCH_CHECK(scale.numel() == rows * groups && scale.scalar_type() == torch::kFloat32 && scale.is_contiguous(),
                "scale: float32, (out, groups, 1)");
    TORCH_CHECK(rows < (1ll << 30) && bytes < (1ll << 30), "fewer than 2^30 rows of fewer than 2^30 bytes");
    auto y = torch::empty({rows}, x.options());
    if (rows == 0) return y;
    const int64_t shared = (bytes / 16 + 31) / 32 * 32 * 128;  // a float4 for every half word, in whole warps
    const bool wide = group_bytes % 16 == 0 && bytes > 0 && shared <= 200 * 1024
                      && reinterpret_cast<uintptr_t>(packed.data_ptr<uint8_t>()) % 16 == 0
                      && reinterpret_cast<uintptr_t>(x.data_ptr<float>()) % 16 == 0;
    if (wide) {
        cudaFuncSetAttribute(wide_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        const int64_t blocks = std::min<int64_t>((rows + WARPS - 1) / WARPS, 132 * 2);
        wide_kernel<<<(unsigned)blocks, THREADS, shared>>>(
            x.data_ptr<float>(), reinterpret_cast<const uint4*>(packed.data_ptr<uint8_t>()), scale.data_ptr<float>(),
            y.data_ptr<float>(), (int)rows, (int)(bytes / 16), (int)(group_bytes / 16));
    } else {
        narrow_kernel<<<(unsigned)((rows + WARPS - 1) / WARPS), THREADS>>>(
            x.data_ptr<float>(), packed.data_ptr<uint8_t>(), scale.data_ptr<float>(), y.data_ptr<float>(), (int)rows, (int)bytes,
            (int)group_bytes);
    }
    return y;
}
"""

module = load_inline(
    name="tuned_int4_product",
    cpp_sources="torch::Tensor int4_product(torch::Tensor x, torch::Tensor packed, torch::Tensor scale);",
    cuda_sources=CUDA,
    functions=["int4_product"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return module.int4_product(x.contiguous(), packed.contiguous(), scale.contiguous())

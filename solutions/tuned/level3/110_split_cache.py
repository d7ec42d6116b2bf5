"""One token's step in four kernels that read weights and the used part of the cache once.

* Projections: a sample is a row of the tensor cores' 16, so that up to 16 samples share one reading of the weights,
  which go straight to registers: of 16 indices of K a lane takes four neighbours, in both factors alike. Float32
  accuracy by three TF32 products (x = big + small to 22 bits). The warps of a block share out K and add up at the
  end.
* Attention: 256 keys of one group of heads a block, which reads nothing behind a sample's length, so half as much as
  the reference on average. A warp takes 32 scores (8 keys of 4 heads) at a time, summed over its lanes by one
  transposing reduction, and weighs values as they come (running maximum).
* The parts are merged with the new token's own key and value; then the projection back.

Bytes: 673 MiB if all of the cache were used; lengths are a quarter to all of it. Flops: 2.4 Gflop, of no account.
Reached on an H200: 64 % of the speed of light of the reference's work (memory), 187 us.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256, WARPS = THREADS / 32, COLUMNS = 16, SAMPLES = 16, AHEAD = 4;
constexpr int DIMS = 128, KEYS = 256;

// Values [k, k + 4) of a row of `size`, zeros beyond it.
template <bool WIDE>
__device__ __forceinline__ float4 load_four(const float* row, int k, int size) {
    if (WIDE) return k < size ? *reinterpret_cast<const float4*>(row + k) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 v;
    v.x = k < size ? row[k] : 0.0f;
    v.y = k + 1 < size ? row[k + 1] : 0.0f;
    v.z = k + 2 < size ? row[k + 2] : 0.0f;
    v.w = k + 3 < size ? row[k + 3] : 0.0f;
    return v;
}

__device__ __forceinline__ void split(float x, uint32_t& big, uint32_t& small) {
    big = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    small = __float_as_uint(x - __uint_as_float(big));
}

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

struct Projection {
    const float* weight;  // (columns, K)
    float* result;        // (samples, columns)
    int columns;
};

// Up to three products with the same x: (samples, K). A block makes 16 columns of one for 16 samples.
template <bool WIDE>
__global__ void __launch_bounds__(THREADS) project_kernel(const float* __restrict__ x, Projection first,
                                                          Projection second, Projection third, int samples, int K) {
    __shared__ float sums[WARPS][SAMPLES][COLUMNS];
    int block = blockIdx.x;
    Projection own = first;
    if (block >= (own.columns + COLUMNS - 1) / COLUMNS) block -= (own.columns + COLUMNS - 1) / COLUMNS, own = second;
    if (block >= (own.columns + COLUMNS - 1) / COLUMNS) block -= (own.columns + COLUMNS - 1) / COLUMNS, own = third;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = block * COLUMNS, sample = blockIdx.y * SAMPLES;
    // Rows beyond the last are read again instead; what comes of them is not written.
    const float* x_rows[2] = {x + (int64_t)min(sample + lane / 4, samples - 1) * K,
                              x + (int64_t)min(sample + lane / 4 + 8, samples - 1) * K};
    const float* w_rows[2] = {own.weight + (int64_t)min(column + lane / 4, own.columns - 1) * K,
                              own.weight + (int64_t)min(column + lane / 4 + 8, own.columns - 1) * K};
    float total[2][4] = {};
    for (int k0 = warp * 16 * AHEAD; k0 < K; k0 += THREADS / 2 * AHEAD) {
        float4 a[AHEAD][2], b[AHEAD][2];
#pragma unroll
        for (int i = 0; i < AHEAD; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                b[i][h] = load_four<WIDE>(w_rows[h], k0 + i * 16 + lane % 4 * 4, K);
                a[i][h] = load_four<WIDE>(x_rows[h], k0 + i * 16 + lane % 4 * 4, K);
            }
        float part[2][4] = {};
#pragma unroll
        for (int i = 0; i < AHEAD; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                uint32_t a_big[4], a_small[4], b_big[2][2], b_small[2][2];
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    split(half ? a[i][h].z : a[i][h].x, a_big[h], a_small[h]);
                    split(half ? a[i][h].w : a[i][h].y, a_big[h + 2], a_small[h + 2]);
                    split(half ? b[i][h].z : b[i][h].x, b_big[h][0], b_small[h][0]);
                    split(half ? b[i][h].w : b[i][h].y, b_big[h][1], b_small[h][1]);
                }
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    mma(part[j], a_small, b_big[j]);
                    mma(part[j], a_big, b_small[j]);
                    mma(part[j], a_big, b_big[j]);
                }
            }
#pragma unroll
        for (int e = 0; e < 8; ++e) total[e / 4][e % 4] += part[e / 4][e % 4];
    }
#pragma unroll
    for (int e = 0; e < 8; ++e)
        sums[warp][lane / 4 + e / 2 % 2 * 8][e / 4 * 8 + lane % 4 * 2 + e % 2] = total[e / 4][e % 4];
    __syncthreads();
    const int row = threadIdx.x / COLUMNS, at = threadIdx.x % COLUMNS;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum += sums[w][row][at];
    if (sample + row < samples && column + at < own.columns)
        own.result[(int64_t)(sample + row) * own.columns + column + at] = sum;
}

// One part of the keys of one group of up to HEADS heads of one sample: grid (parts, groups, batch). Of every head it leaves the
// largest score, the sum of exponentials of two relative to it, and the values weighed by them.
template <int HEADS, bool WIDE>
__global__ void __launch_bounds__(THREADS, 2)
    attend_kernel(const float* __restrict__ query, const float* __restrict__ keys, const float* __restrict__ values,
                  const int64_t* __restrict__ lengths, float2* __restrict__ limits, float* __restrict__ mixed,
                  int capacity, int heads, int dims, float scale) {
    constexpr int CHUNK = 32 / HEADS;  // keys that a warp takes at a time
    __shared__ float2 of_warps[WARPS][HEADS];
    __shared__ __align__(16) float sums[WARPS][HEADS][DIMS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t pair = (int64_t)blockIdx.z * gridDim.y + blockIdx.y, slot = (pair * gridDim.x + blockIdx.x) * heads;
    const int end = (int)min(lengths[blockIdx.z], (int64_t)min(capacity, ((int)blockIdx.x + 1) * KEYS));
    float4 q[HEADS], total[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        q[h] = load_four<WIDE>(query + (pair * heads + min(h, heads - 1)) * dims, lane * 4, dims);
        total[h] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    keys += pair * capacity * dims, values += pair * capacity * dims;
    float top = -INFINITY, weight = 0.0f;  // of head lane % HEADS; `weight` of this lane's keys alone
    for (int first = blockIdx.x * KEYS + warp * CHUNK; first < end; first += WARPS * CHUNK) {
        float4 k[CHUNK], v[CHUNK];
#pragma unroll
        for (int i = 0; i < CHUNK; ++i)
            k[i] = load_four<WIDE>(keys + (int64_t)min(first + i, end - 1) * dims, lane * 4, dims);
#pragma unroll
        for (int i = 0; i < CHUNK; ++i)
            v[i] = load_four<WIDE>(values + (int64_t)min(first + i, end - 1) * dims, lane * 4, dims);
        float s[32];
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            const float4 a = k[i / HEADS], b = q[i % HEADS];
            s[i] = a.x * b.x + a.y * b.y + (a.z * b.z + a.w * b.w);
        }
        // Sums over lanes; lane l gets that of s[l], which is key l / HEADS and head l % HEADS.
#pragma unroll
        for (int bit = 4; bit >= 0; --bit)
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                const int width = 1 << bit;
                const bool upper = lane & width;
                if (i >= width) continue;
                const float given = upper ? s[i] : s[i + width];
                s[i] = (upper ? s[i + width] : s[i]) + __shfl_xor_sync(0xffffffffu, given, width);
            }
        const float score = first + lane / HEADS < end ? s[0] * scale : -INFINITY;
        float highest = fmaxf(top, score);
#pragma unroll
        for (int width = HEADS; width < 32; width *= 2)
            highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, width));
        const float shrink = exp2f(top - highest), share = exp2f(score - highest);
        top = highest;
        weight = weight * shrink + share;
#pragma unroll
        for (int h = 0; h < HEADS; ++h) {
            const float factor = __shfl_sync(0xffffffffu, shrink, h);
            total[h].x *= factor, total[h].y *= factor, total[h].z *= factor, total[h].w *= factor;
#pragma unroll
            for (int i = 0; i < CHUNK; ++i) {
                const float p = __shfl_sync(0xffffffffu, share, i * HEADS + h);
                total[h].x += p * v[i].x, total[h].y += p * v[i].y, total[h].z += p * v[i].z, total[h].w += p * v[i].w;
            }
        }
    }
#pragma unroll
    for (int width = HEADS; width < 32; width *= 2) weight += __shfl_xor_sync(0xffffffffu, weight, width);
    if (lane < HEADS) of_warps[warp][lane] = make_float2(top, weight);
#pragma unroll
    for (int h = 0; h < HEADS; ++h) *reinterpret_cast<float4*>(&sums[warp][h][lane * 4]) = total[h];
    __syncthreads();
    for (int i = threadIdx.x; i < HEADS * DIMS; i += THREADS) {
        const int h = i / DIMS, d = i % DIMS;
        float highest = -INFINITY, sum = 0.0f, whole = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) highest = fmaxf(highest, of_warps[w][h].x);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const float factor = of_warps[w][h].x == -INFINITY ? 0.0f : exp2f(of_warps[w][h].x - highest);
            sum += factor * sums[w][h][d];
            whole += factor * of_warps[w][h].y;
        }
        if (h >= heads) continue;
        if (d < dims) mixed[(slot + h) * dims + d] = sum;
        if (d == 0) limits[slot + h] = make_float2(highest, whole);
    }
}

// One head of one sample a block: merges the parts with the new token, whose score is made here.
__global__ void __launch_bounds__(DIMS)
    merge_kernel(const float* __restrict__ query, const float* __restrict__ key, const float* __restrict__ value,
                 const float2* __restrict__ limits, const float* __restrict__ mixed, float* __restrict__ result,
                 int parts, int heads, int dims, float scale) {
    __shared__ float of_warps[DIMS / 32];
    const int64_t pair = blockIdx.x / heads;
    const int h = blockIdx.x % heads, d = threadIdx.x;
    float score = d < dims ? query[(int64_t)blockIdx.x * dims + d] * key[pair * dims + d] : 0.0f;
#pragma unroll
    for (int width = 16; width > 0; width /= 2) score += __shfl_xor_sync(0xffffffffu, score, width);
    if (d % 32 == 0) of_warps[d / 32] = score;
    __syncthreads();
    score = 0.0f;
#pragma unroll
    for (int w = 0; w < DIMS / 32; ++w) score += of_warps[w];
    score *= scale;
    float highest = score;
    for (int part = 0; part < parts; ++part) highest = fmaxf(highest, limits[(pair * parts + part) * heads + h].x);
    float whole = exp2f(score - highest), sum = d < dims ? whole * value[pair * dims + d] : 0.0f;
    for (int part = 0; part < parts; ++part) {
        const int64_t slot = (pair * parts + part) * heads + h;
        const float factor = exp2f(limits[slot].x - highest);
        whole += factor * limits[slot].y;
        if (d < dims) sum += factor * mixed[slot * dims + d];
    }
    if (d < dims) result[(int64_t)blockIdx.x * dims + d] = sum / whole;
}

bool is_aligned(const torch::Tensor& t) { return reinterpret_cast<uintptr_t>(t.data_ptr<float>()) % 16 == 0; }

void project(const torch::Tensor& x, Projection first, Projection second, Projection third, bool wide) {
    const int64_t samples = x.size(0);
    auto blocks_of = [](const Projection& p) { return (p.columns + COLUMNS - 1) / COLUMNS; };
    const dim3 blocks((unsigned)(blocks_of(first) + blocks_of(second) + blocks_of(third)),
                      (unsigned)((samples + SAMPLES - 1) / SAMPLES));
    (wide ? project_kernel<true> : project_kernel<false>)<<<blocks, THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), first, second, third, (int)samples, (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <int HEADS>
void attend(bool wide, dim3 blocks, const torch::Tensor& query, const torch::Tensor& keys, const torch::Tensor& values,
            const torch::Tensor& lengths, float2* limits, torch::Tensor& mixed, int64_t heads, float scale) {
    (wide ? attend_kernel<HEADS, true>
          : attend_kernel<HEADS, false>)<<<blocks, THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        query.data_ptr<float>(), keys.data_ptr<float>(), values.data_ptr<float>(), lengths.data_ptr<int64_t>(), limits,
        mixed.data_ptr<float>(), (int)keys.size(2), (int)heads, (int)keys.size(3), scale);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> decode(torch::Tensor x, torch::Tensor keys,
                                                               torch::Tensor values, torch::Tensor lengths,
                                                               torch::Tensor to_query, torch::Tensor to_key,
                                                               torch::Tensor to_value, torch::Tensor to_out) {
    const int64_t batch = keys.size(0), groups = keys.size(1), capacity = keys.size(2), dims = keys.size(3);
    const int64_t features = to_query.size(0), heads = features / dims / groups, parts = (capacity + KEYS - 1) / KEYS;
    TORCH_CHECK(dims <= DIMS && heads <= 8, "up to ", DIMS, " dimensions and 8 heads a group");
    auto query = torch::empty({batch, features}, x.options()), out = torch::empty({batch, to_out.size(0)}, x.options());
    auto key = torch::empty({batch, groups, dims}, x.options()),
         value = torch::empty({batch, groups, dims}, x.options());
    auto limits = torch::empty({batch, groups, parts, heads, 2}, x.options());
    auto mixed = torch::empty({batch, groups, parts, heads, dims}, x.options()),
         merged = torch::empty({batch, features}, x.options());
    auto* limits_at = reinterpret_cast<float2*>(limits.data_ptr<float>());
    const float scale = (float)(1.44269504 / std::sqrt((double)dims));
    const bool wide =
        x.size(1) % 4 == 0 && is_aligned(x) && is_aligned(to_query) && is_aligned(to_key) && is_aligned(to_value);
    project(x, {to_query.data_ptr<float>(), query.data_ptr<float>(), (int)features},
            {to_key.data_ptr<float>(), key.data_ptr<float>(), (int)(groups * dims)},
            {to_value.data_ptr<float>(), value.data_ptr<float>(), (int)(groups * dims)}, wide);
    const bool wide_cache = dims % 4 == 0 && is_aligned(keys) && is_aligned(values);
    const dim3 blocks((unsigned)parts, (unsigned)groups, (unsigned)batch);
    (heads <= 4 ? attend<4> : attend<8>)(wide_cache, blocks, query, keys, values, lengths, limits_at, mixed, heads,
                                         scale);
    merge_kernel<<<(unsigned)(batch * groups * heads), DIMS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        query.data_ptr<float>(), key.data_ptr<float>(), value.data_ptr<float>(), limits_at, mixed.data_ptr<float>(),
        merged.data_ptr<float>(), (int)parts, (int)heads, (int)dims, scale);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    project(merged, {to_out.data_ptr<float>(), out.data_ptr<float>(), (int)to_out.size(0)}, {}, {},
            features % 4 == 0 && is_aligned(to_out));
    return {out, key, value};
}
"""

DECLARATION = """
std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> decode(
    torch::Tensor x, torch::Tensor keys, torch::Tensor values, torch::Tensor lengths, torch::Tensor to_query,
    torch::Tensor to_key, torch::Tensor to_value, torch::Tensor to_out);
"""

module = load_inline(
    name="decoding_split_cache",
    cpp_sources=DECLARATION,
    cuda_sources=CUDA,
    functions=["decode"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, heads: int, groups: int, head_dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(heads * head_dim, heads * head_dim, bias=False)
        self.key = nn.Linear(heads * head_dim, groups * head_dim, bias=False)
        self.value = nn.Linear(heads * head_dim, groups * head_dim, bias=False)
        self.out = nn.Linear(heads * head_dim, heads * head_dim, bias=False)

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        given = [tensor.contiguous() for tensor in (x, keys, values, lengths)]
        weights = [layer.weight.detach() for layer in (self.query, self.key, self.value, self.out)]
        return tuple(module.decode(*given, *weights))

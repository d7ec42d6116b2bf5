"""A residual sum with its layer norm, and their gradients, which meet in one kernel.

Idea: eager adds, normalises, and adds the gradient of the sum to that of the norm in kernels of their own. Here the forward has a
row in a block and writes sum and norm. In the backward a block walks over many rows and writes the gradient of both addends
once. Each thread always has the same columns, so that it adds their gradients of weight and bias in shared memory without waiting
for others. A second kernel adds the blocks' sums in a fixed order.

Bytes: 16 a value forward (8 read, 8 written), 16 backward (12 read, once more from the cache, 4 written).
Flops: about 7 a value forward, 14 backward.
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int BLOCKS = 528;           // that walk over the rows: four a processor
constexpr int MOST = 6 * 1024 - 64;   // columns whose sums fit the shared memory
constexpr unsigned ALL = 0xffffffffu;

// A group of values that one access moves: V is float4 if every row starts at a multiple of 16 bytes, else float.
template <class V>
struct Group {
    static constexpr int SIZE = sizeof(V) / sizeof(float);
    V all;
    __device__ float& operator[](int i) { return reinterpret_cast<float*>(&all)[i]; }
};

struct Pair { float a, b; };

// Of the whole block, for all threads.
__device__ Pair block_sum(Pair v, Pair* room) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        v = {v.a + __shfl_xor_sync(ALL, v.a, offset), v.b + __shfl_xor_sync(ALL, v.b, offset)};
    __syncthreads();  // the room is free
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = v;
    __syncthreads();
    v = {0.0f, 0.0f};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) v = {v.a + room[w].a, v.b + room[w].b};
    return v;
}

// `lines` of a row: mean, inverse of the deviation.
template <class V>
__global__ void __launch_bounds__(THREADS) forward_kernel(
    const V* __restrict__ x, const V* __restrict__ residual, const V* __restrict__ weight, const V* __restrict__ bias,
    V* __restrict__ y, V* __restrict__ both, Pair* __restrict__ lines, int groups, float epsilon) {
    __shared__ Pair room[WARPS];
    const int64_t base = (int64_t)blockIdx.x * groups;
    const float share = 1.0f / (float)(groups * Group<V>::SIZE);
    Pair sum = {0.0f, 0.0f};
    for (int i = threadIdx.x; i < groups; i += THREADS) {
        Group<V> v{__ldcs(x + base + i)}, r{__ldcs(residual + base + i)};
#pragma unroll
        for (int k = 0; k < Group<V>::SIZE; ++k) v[k] += r[k], sum.a += v[k];
        both[base + i] = v.all;
    }
    const float mean = block_sum(sum, room).a * share;
    sum = {0.0f, 0.0f};
    for (int i = threadIdx.x; i < groups; i += THREADS) {  // each thread reads what it has written itself
        Group<V> v{both[base + i]};
#pragma unroll
        for (int k = 0; k < Group<V>::SIZE; ++k) sum.a += (v[k] - mean) * (v[k] - mean);
    }
    const float inverse = rsqrtf(block_sum(sum, room).a * share + epsilon);
    if (threadIdx.x == 0) lines[blockIdx.x] = {mean, inverse};
    for (int i = threadIdx.x; i < groups; i += THREADS) {
        Group<V> v{both[base + i]}, w{weight[i]}, b{bias[i]};
#pragma unroll
        for (int k = 0; k < Group<V>::SIZE; ++k) v[k] = (v[k] - mean) * inverse * w[k] + b[k];
        __stcs(y + base + i, v.all);
    }
}

template <class V>
__global__ void __launch_bounds__(THREADS) backward_kernel(
    const V* __restrict__ both, const V* __restrict__ weight, const Pair* __restrict__ lines, const V* __restrict__ of_norm,
    const V* __restrict__ of_sum, V* __restrict__ back, V* __restrict__ sums, int rows, int groups) {
    extern __shared__ float4 shared[];
    __shared__ Pair room[WARPS];
    V* of_weight = reinterpret_cast<V*>(shared);
    V* of_bias = of_weight + groups;
    const float share = 1.0f / (float)(groups * Group<V>::SIZE);
    for (int i = threadIdx.x; i < groups; i += THREADS) of_weight[i] = V{}, of_bias[i] = V{};
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const int64_t base = (int64_t)row * groups;
        const Pair line = lines[row];
        Pair sum = {0.0f, 0.0f};
        for (int i = threadIdx.x; i < groups; i += THREADS) {
            Group<V> v{both[base + i]}, w{weight[i]}, g{of_norm[base + i]};
#pragma unroll
            for (int k = 0; k < Group<V>::SIZE; ++k) {
                const float scaled = g[k] * w[k];
                sum = {sum.a + scaled, sum.b + scaled * (v[k] - line.a) * line.b};
            }
        }
        sum = block_sum(sum, room);
        const float shift = sum.a * share, along = sum.b * share;
        for (int i = threadIdx.x; i < groups; i += THREADS) {
            Group<V> v{both[base + i]}, w{weight[i]}, g{of_norm[base + i]}, s{__ldcs(of_sum + base + i)};
            Group<V> gw{of_weight[i]}, gb{of_bias[i]};
#pragma unroll
            for (int k = 0; k < Group<V>::SIZE; ++k) {
                const float normal = (v[k] - line.a) * line.b;
                gw[k] += g[k] * normal;
                gb[k] += g[k];
                s[k] += line.b * (g[k] * w[k] - shift - normal * along);
            }
            of_weight[i] = gw.all, of_bias[i] = gb.all;
            __stcs(back + base + i, s.all);
        }
    }
    for (int i = threadIdx.x; i < groups; i += THREADS) {
        sums[(int64_t)blockIdx.x * 2 * groups + i] = of_weight[i];
        sums[((int64_t)blockIdx.x * 2 + 1) * groups + i] = of_bias[i];
    }
}

// A block has 32 columns; its warps share the rows of `sums`.
__global__ void __launch_bounds__(THREADS) columns_kernel(const float* __restrict__ sums, float* __restrict__ found, int rows, int columns) {
    __shared__ float room[WARPS][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (column < columns)
        for (int row = warp; row < rows; row += WARPS) sum += sums[(int64_t)row * columns + column];
    room[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || column >= columns) return;
    for (int w = 1; w < WARPS; ++w) sum += room[w][lane];
    found[column] = sum;
}

bool starts_wide(const torch::Tensor& t) { return reinterpret_cast<uintptr_t>(t.data_ptr<float>()) % 16 == 0; }
void check(const torch::Tensor& t) {
    TORCH_CHECK(t.is_cuda() && t.scalar_type() == torch::kFloat32 && t.is_contiguous() && t.numel() > 0,
                "needs contiguous float32 tensors on the GPU");
}
template <class V>
const V* from(const torch::Tensor& t) { return reinterpret_cast<const V*>(t.data_ptr<float>()); }
template <class V>
V* to(torch::Tensor& t) { return reinterpret_cast<V*>(t.data_ptr<float>()); }

template <class V>
void start_forward(const torch::Tensor& x, const torch::Tensor& residual, const torch::Tensor& weight, const torch::Tensor& bias,
                   torch::Tensor& y, torch::Tensor& both, torch::Tensor& lines, double epsilon) {
    forward_kernel<V><<<(unsigned)x.size(0), THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
        from<V>(x), from<V>(residual), from<V>(weight), from<V>(bias), to<V>(y), to<V>(both), to<Pair>(lines),
        (int)(x.size(1) * sizeof(float) / sizeof(V)), (float)epsilon);
}

template <class V>
void start_backward(const torch::Tensor& both, const torch::Tensor& weight, const torch::Tensor& lines, const torch::Tensor& of_norm,
                    const torch::Tensor& of_sum, torch::Tensor& back, torch::Tensor& sums) {
    const size_t bytes = (both.size(1) * 2 * sizeof(float) + 15) / 16 * 16;
    backward_kernel<V><<<(unsigned)sums.size(0), THREADS, bytes, at::cuda::getCurrentCUDAStream()>>>(
        from<V>(both), from<V>(weight), from<Pair>(lines), from<V>(of_norm), from<V>(of_sum), to<V>(back), to<V>(sums),
        (int)both.size(0), (int)(both.size(1) * sizeof(float) / sizeof(V)));
}

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor residual, torch::Tensor weight, torch::Tensor bias, double epsilon) {
    check(x), check(residual), check(weight), check(bias);
    TORCH_CHECK(x.dim() == 2 && weight.numel() == x.size(1) && x.size(1) <= MOST, "x: (rows, features), at most 6,080 features");
    auto y = torch::empty_like(x), both = torch::empty_like(x), lines = torch::empty({x.size(0), 2}, x.options());
    const bool wide = x.size(1) % 4 == 0 && starts_wide(x) && starts_wide(residual) && starts_wide(weight) && starts_wide(bias);
    (wide ? start_forward<float4> : start_forward<float>)(x, residual, weight, bias, y, both, lines, epsilon);
    return {y, both, lines};
}

std::vector<torch::Tensor> backward(torch::Tensor both, torch::Tensor weight, torch::Tensor lines, torch::Tensor of_norm,
                                    torch::Tensor of_sum) {
    check(of_norm), check(of_sum);
    const int64_t columns = both.size(1);
    auto back = torch::empty_like(both), found = torch::empty({2, columns}, both.options());
    auto sums = torch::empty({std::min<int64_t>(BLOCKS, both.size(0)), 2 * columns}, both.options());
    const bool wide = columns % 4 == 0 && starts_wide(both) && starts_wide(weight) && starts_wide(of_norm) && starts_wide(of_sum);
    (wide ? start_backward<float4> : start_backward<float>)(both, weight, lines, of_norm, of_sum, back, sums);
    columns_kernel<<<(unsigned)((2 * columns + 31) / 32), THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
        sums.data_ptr<float>(), found.data_ptr<float>(), (int)sums.size(0), (int)(2 * columns));
    return {back, found};
}
"""

module = load_inline(
    name="tuned_residual_layer_norm",
    cpp_sources="#include <vector>\n"
    "std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor residual, torch::Tensor weight, torch::Tensor bias, double epsilon);\n"
    "std::vector<torch::Tensor> backward(torch::Tensor both, torch::Tensor weight, torch::Tensor lines, torch::Tensor of_norm, torch::Tensor of_sum);",
    cuda_sources=CUDA,
    functions=["forward", "backward"],
    extra_cuda_cflags=["-O3"],
)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias):
        y, both, lines = module.forward(x, residual, weight, bias, 1e-5)
        ctx.save_for_backward(both, weight, lines)
        return y, both

    @staticmethod
    def backward(ctx, of_norm, of_sum):
        back, found = module.backward(*ctx.saved_tensors, of_norm.contiguous(), of_sum.contiguous())
        return back, back, found[0], found[1]


class ModelNew(torch.nn.Module):
    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(num_features)
        torch.nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return Function.apply(x.contiguous(), residual.contiguous(), self.norm.weight, self.norm.bias)

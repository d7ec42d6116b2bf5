"""RMS norm and its gradients; the sums for the weight stay in shared memory while a block walks over rows.

Idea: eager makes six kernels forward and about a dozen backward. Here a block has a row in the forward and keeps one number of
it. In the backward a block walks over many rows. Each thread always has the same columns, so that it adds their gradients of the
weight in shared memory without waiting for others. A second kernel adds the blocks' sums in a fixed order.

Bytes: 8 a value forward (4 read, once more from the cache, 4 written), 12 backward (8 read, once more from the cache, 4 written).
Flops: about 4 a value forward, 10 backward.
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int BLOCKS = 528;           // that walk over the rows: four a processor
constexpr int MOST = 12 * 1024 - 64;     // columns whose sums fit the shared memory
constexpr unsigned ALL = 0xffffffffu;

// A group of values that one access moves: V is float4 if every row starts at a multiple of 16 bytes, else float.
template <class V>
struct Group {
    static constexpr int SIZE = sizeof(V) / sizeof(float);
    V all;
    __device__ float& operator[](int i) { return reinterpret_cast<float*>(&all)[i]; }
};

// Of the whole block, for all threads.
__device__ float block_sum(float v, float* room) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(ALL, v, offset);
    __syncthreads();  // the room is free
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) v += room[w];
    return v;
}

template <class V>
__global__ void __launch_bounds__(THREADS) forward_kernel(
    const V* __restrict__ x, const V* __restrict__ weight, V* __restrict__ y, float* __restrict__ inverses, int groups, float epsilon) {
    __shared__ float room[WARPS];
    const int64_t base = (int64_t)blockIdx.x * groups;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < groups; i += THREADS) {
        Group<V> v{x[base + i]};
#pragma unroll
        for (int k = 0; k < Group<V>::SIZE; ++k) sum += v[k] * v[k];
    }
    sum = block_sum(sum, room);
    const float inverse = rsqrtf(sum / (float)(groups * Group<V>::SIZE) + epsilon);
    if (threadIdx.x == 0) inverses[blockIdx.x] = inverse;
    for (int i = threadIdx.x; i < groups; i += THREADS) {
        Group<V> v{x[base + i]}, w{weight[i]};
#pragma unroll
        for (int k = 0; k < Group<V>::SIZE; ++k) v[k] *= inverse * w[k];
        __stcs(y + base + i, v.all);
    }
}

template <class V>
__global__ void __launch_bounds__(THREADS) backward_kernel(
    const V* __restrict__ x, const V* __restrict__ weight, const float* __restrict__ inverses, const V* __restrict__ grad,
    V* __restrict__ of_x, V* __restrict__ sums, int rows, int groups) {
    extern __shared__ float4 shared[];
    __shared__ float room[WARPS];
    V* columns = reinterpret_cast<V*>(shared);
    for (int i = threadIdx.x; i < groups; i += THREADS) columns[i] = V{};
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const int64_t base = (int64_t)row * groups;
        const float inverse = inverses[row];
        float along = 0.0f;
        for (int i = threadIdx.x; i < groups; i += THREADS) {
            Group<V> v{x[base + i]}, w{weight[i]}, g{grad[base + i]};
#pragma unroll
            for (int k = 0; k < Group<V>::SIZE; ++k) along += g[k] * w[k] * v[k];
        }
        along = block_sum(along, room) * inverse * inverse / (float)(groups * Group<V>::SIZE);
        for (int i = threadIdx.x; i < groups; i += THREADS) {
            Group<V> v{x[base + i]}, w{weight[i]}, g{grad[base + i]}, sum{columns[i]};
#pragma unroll
            for (int k = 0; k < Group<V>::SIZE; ++k) {
                sum[k] += g[k] * v[k] * inverse;
                v[k] = inverse * (g[k] * w[k] - v[k] * along);
            }
            columns[i] = sum.all;
            __stcs(of_x + base + i, v.all);
        }
    }
    for (int i = threadIdx.x; i < groups; i += THREADS) sums[(int64_t)blockIdx.x * groups + i] = columns[i];
}

// A block has 32 columns; its warps share the rows of `sums`.
__global__ void __launch_bounds__(THREADS) columns_kernel(const float* __restrict__ sums, float* __restrict__ of_weight, int rows, int columns) {
    __shared__ float room[WARPS][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (column < columns)
        for (int row = warp; row < rows; row += WARPS) sum += sums[(int64_t)row * columns + column];
    room[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || column >= columns) return;
    for (int w = 1; w < WARPS; ++w) sum += room[w][lane];
    of_weight[column] = sum;
}

bool starts_wide(const torch::Tensor& t) { return reinterpret_cast<uintptr_t>(t.data_ptr<float>()) % 16 == 0; }
void check(const torch::Tensor& t) {
    TORCH_CHECK(t.is_cuda() && t.scalar_type() == torch::kFloat32 && t.is_contiguous() && t.numel() > 0,
                "needs contiguous float32 tensors on the GPU");
}

template <class V>
void start_forward(const torch::Tensor& x, const torch::Tensor& weight, torch::Tensor& y, torch::Tensor& inverses, double epsilon) {
    forward_kernel<V><<<(unsigned)x.size(0), THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const V*>(x.data_ptr<float>()), reinterpret_cast<const V*>(weight.data_ptr<float>()),
        reinterpret_cast<V*>(y.data_ptr<float>()), inverses.data_ptr<float>(), (int)(x.size(1) * sizeof(float) / sizeof(V)), (float)epsilon);
}

template <class V>
void start_backward(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& inverses, const torch::Tensor& grad,
                    torch::Tensor& of_x, torch::Tensor& sums) {
    const size_t bytes = (x.size(1) * sizeof(float) + 15) / 16 * 16;
    backward_kernel<V><<<(unsigned)sums.size(0), THREADS, bytes, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const V*>(x.data_ptr<float>()), reinterpret_cast<const V*>(weight.data_ptr<float>()), inverses.data_ptr<float>(),
        reinterpret_cast<const V*>(grad.data_ptr<float>()), reinterpret_cast<V*>(of_x.data_ptr<float>()),
        reinterpret_cast<V*>(sums.data_ptr<float>()), (int)x.size(0), (int)(x.size(1) * sizeof(float) / sizeof(V)));
}

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, double epsilon) {
    check(x), check(weight);
    TORCH_CHECK(x.dim() == 2 && weight.numel() == x.size(1) && x.size(1) <= MOST, "x: (rows, features), at most 12,224 features");
    auto y = torch::empty_like(x), inverses = torch::empty({x.size(0)}, x.options());
    const bool wide = x.size(1) % 4 == 0 && starts_wide(x) && starts_wide(weight);
    (wide ? start_forward<float4> : start_forward<float>)(x, weight, y, inverses, epsilon);
    return {y, inverses};
}

std::vector<torch::Tensor> backward(torch::Tensor x, torch::Tensor weight, torch::Tensor inverses, torch::Tensor grad) {
    check(grad);
    auto of_x = torch::empty_like(x), of_weight = torch::empty_like(weight);
    auto sums = torch::empty({std::min<int64_t>(BLOCKS, x.size(0)), x.size(1)}, x.options());
    const bool wide = x.size(1) % 4 == 0 && starts_wide(x) && starts_wide(weight) && starts_wide(grad);
    (wide ? start_backward<float4> : start_backward<float>)(x, weight, inverses, grad, of_x, sums);
    columns_kernel<<<(unsigned)((x.size(1) + 31) / 32), THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
        sums.data_ptr<float>(), of_weight.data_ptr<float>(), (int)sums.size(0), (int)x.size(1));
    return {of_x, of_weight};
}
"""

module = load_inline(
    name="tuned_rms_norm_backward",
    cpp_sources="#include <vector>\n"
    "std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, double epsilon);\n"
    "std::vector<torch::Tensor> backward(torch::Tensor x, torch::Tensor weight, torch::Tensor inverses, torch::Tensor grad);",
    cuda_sources=CUDA,
    functions=["forward", "backward"],
    extra_cuda_cflags=["-O3"],
)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        y, inverses = module.forward(x, weight, 1e-6)
        ctx.save_for_backward(x, weight, inverses)
        return y

    @staticmethod
    def backward(ctx, grad):
        return tuple(module.backward(*ctx.saved_tensors, grad.contiguous()))


class ModelNew(torch.nn.Module):
    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(0.5 + torch.rand(num_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Function.apply(x.contiguous(), self.weight)

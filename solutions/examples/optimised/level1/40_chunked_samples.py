"""Three kernels. There are fewer samples than multiprocessors, so each is cut into chunks: sums of the chunks, then mean
and deviation of each sample, then the normalisation. Partial sums are float64, since the variance is a difference."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int CHUNK = 16384;  // values a block handles

__global__ void chunk_sums(const float* x, double2* sums, int64_t length) {
    __shared__ double2 partial[THREADS];
    const int64_t begin = (int64_t)blockIdx.x * CHUNK;
    const int64_t end = begin + CHUNK < length ? begin + CHUNK : length;
    const float* sample = x + blockIdx.y * length;
    double2 sum = make_double2(0.0, 0.0);
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        double v = sample[i];
        sum.x += v;
        sum.y += v * v;
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            partial[threadIdx.x].x += partial[threadIdx.x + half].x;
            partial[threadIdx.x].y += partial[threadIdx.x + half].y;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[(int64_t)blockIdx.y * gridDim.x + blockIdx.x] = partial[0];
}

__global__ void statistics(const double2* sums, float2* result, int chunks, int64_t length, double eps) {
    if (threadIdx.x != 0) return;
    double2 total = make_double2(0.0, 0.0);
    for (int i = 0; i < chunks; ++i) {
        total.x += sums[(int64_t)blockIdx.x * chunks + i].x;
        total.y += sums[(int64_t)blockIdx.x * chunks + i].y;
    }
    const double mean = total.x / length;
    const double variance = total.y / length - mean * mean;
    result[blockIdx.x] = make_float2((float)mean, (float)(1.0 / sqrt(variance + eps)));
}

__global__ void normalise(const float* x, const float* weight, const float* bias, const float2* stats, float* y,
                          int64_t length) {
    const int64_t begin = (int64_t)blockIdx.x * CHUNK;
    const int64_t end = begin + CHUNK < length ? begin + CHUNK : length;
    const float2 s = stats[blockIdx.y];
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        y[blockIdx.y * length + i] = (x[blockIdx.y * length + i] - s.x) * s.y * weight[i] + bias[i];
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    auto y = torch::empty_like(x);
    const int64_t samples = x.size(0), length = weight.numel();
    const int chunks = (length + CHUNK - 1) / CHUNK;
    auto sums = torch::empty({samples, chunks, 2}, x.options().dtype(torch::kFloat64));
    auto stats = torch::empty({samples, 2}, x.options());
    auto* sums_at = reinterpret_cast<double2*>(sums.data_ptr<double>());
    auto* stats_at = reinterpret_cast<float2*>(stats.data_ptr<float>());
    dim3 blocks(chunks, samples);
    chunk_sums<<<blocks, THREADS>>>(x.data_ptr<float>(), sums_at, length);
    statistics<<<samples, 32>>>(sums_at, stats_at, chunks, length, eps);
    normalise<<<blocks, THREADS>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), stats_at, y.data_ptr<float>(), length);
    return y;
}
"""

module = load_inline(
    name="chunked_layer_norm",
    cpp_sources="torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);",
    cuda_sources=CUDA,
    functions=["layer_norm"],
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape: tuple) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.layer_norm(x.contiguous(), self.ln.weight.detach(), self.ln.bias.detach(), self.ln.eps)

"""MISTAKE: the loop ends one term early. Among a million positive terms nobody misses one; around zero it shows."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void matvec_kernel(const float* a, const float* x, float* y, int64_t length) {
    __shared__ float partial[256];
    const float* row = a + blockIdx.x * length;
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < length - 1; i += 256) sum += row[i] * x[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = partial[0];
}

torch::Tensor matvec(torch::Tensor a, torch::Tensor x) {
    auto y = torch::empty({a.size(0), 1}, a.options());
    matvec_kernel<<<a.size(0), 256>>>(a.data_ptr<float>(), x.data_ptr<float>(), y.data_ptr<float>(), a.size(1));
    return y;
}
"""

module = load_inline(
    name="short_matvec",
    cpp_sources="torch::Tensor matvec(torch::Tensor a, torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["matvec"],
)


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return module.matvec(A.contiguous(), B.contiguous())

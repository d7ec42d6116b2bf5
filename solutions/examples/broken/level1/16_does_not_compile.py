"""MISTAKE: `width` was renamed to `n`, except in one place. The record names the line."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void matmul_kernel(const float* a, const float* b, float* c, int m, int n, int length) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < length; ++k) sum += a[(int64_t)k * m + row] * b[(int64_t)k * width + col];
    c[(int64_t)row * n + col] = sum;
}

torch::Tensor matmul_at(torch::Tensor a, torch::Tensor b) {
    int length = a.size(0), m = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    dim3 threads(32, 8), blocks((n + 31) / 32, (m + 7) / 8);
    matmul_kernel<<<blocks, threads>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, length);
    return c;
}
"""

module = load_inline(
    name="renamed_matmul_at",
    cpp_sources="torch::Tensor matmul_at(torch::Tensor a, torch::Tensor b);",
    cuda_sources=CUDA,
    functions=["matmul_at"],
)


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return module.matmul_at(A.contiguous(), B.contiguous())

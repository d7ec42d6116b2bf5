"""The classic 32 x 32 shared-memory tiles, compiled in the constructor. With the first factor stored transposed, rows of
both tiles are rows in memory, so that all loads are coalesced."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

#define TILE 32

__global__ void matmul_kernel(const float* a, const float* b, float* c, int m, int n, int length) {
    __shared__ float as[TILE][TILE];
    __shared__ float bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
    float sum = 0.0f;
    for (int k0 = 0; k0 < length; k0 += TILE) {
        int k = k0 + ty;
        as[ty][tx] = k < length && row0 + tx < m ? a[(int64_t)k * m + row0 + tx] : 0.0f;
        bs[ty][tx] = k < length && col0 + tx < n ? b[(int64_t)k * n + col0 + tx] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += as[i][ty] * bs[i][tx];
        __syncthreads();
    }
    if (row0 + ty < m && col0 + tx < n) c[(int64_t)(row0 + ty) * n + col0 + tx] = sum;
}

torch::Tensor matmul_at(torch::Tensor a, torch::Tensor b) {
    int length = a.size(0), m = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    dim3 threads(TILE, TILE), blocks((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
    matmul_kernel<<<blocks, threads>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, length);
    return c;
}
"""


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.module = load_inline(
            name="tiled_matmul_at",
            cpp_sources="torch::Tensor matmul_at(torch::Tensor a, torch::Tensor b);",
            cuda_sources=CUDA,
            functions=["matmul_at"],
        )

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return self.module.matmul_at(A.contiguous(), B.contiguous())

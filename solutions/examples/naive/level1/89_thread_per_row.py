"""One thread walks one row. The row is sequential by nature; the parallelism is across rows alone."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void cumsum_kernel(const float* x, float* y, int64_t rows, int64_t length) {
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int64_t i = row * length; i < (row + 1) * length; ++i) {
        sum += x[i];
        y[i] = sum;
    }
}

torch::Tensor cumsum_rows(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int64_t rows = x.size(0);
    cumsum_kernel<<<(rows + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, x.size(1));
    return y;
}
"""

module = load_inline(
    name="naive_cumsum",
    cpp_sources="torch::Tensor cumsum_rows(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["cumsum_rows"],
)


class ModelNew(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim != 1:
            raise ValueError("made for rows")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.cumsum_rows(x.contiguous())

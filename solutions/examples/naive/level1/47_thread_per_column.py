"""One thread sums one column. Neighbouring threads read neighbouring addresses, so even this is close to what the
memory can give."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void sum_kernel(const float* x, float* y, int64_t outer, int64_t length, int64_t inner) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= outer * inner) return;
    const float* column = x + (i / inner) * length * inner + i % inner;
    float sum = 0.0f;
    for (int64_t r = 0; r < length; ++r) sum += column[r * inner];
    y[i] = sum;
}

torch::Tensor sum_middle(torch::Tensor x) {
    int64_t outer = x.size(0), length = x.size(1), inner = x.size(2);
    auto y = torch::empty({outer, 1, inner}, x.options());
    int64_t count = outer * inner;
    sum_kernel<<<(count + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), outer, length, inner);
    return y;
}
"""

module = load_inline(
    name="naive_sum",
    cpp_sources="torch::Tensor sum_middle(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["sum_middle"],
)


class ModelNew(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim != 1:
            raise ValueError("made for the middle one of three dimensions")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.sum_middle(x.contiguous())

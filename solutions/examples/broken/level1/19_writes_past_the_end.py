"""MISTAKE: `<=` instead of `<`. One value too many is read and written; whether that crashes, or overwrites another
tensor unnoticed, is left to chance."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void relu_kernel(const float* x, float* y, int64_t count) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= count) y[i] = fmaxf(x[i], 0.0f);
}

torch::Tensor relu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int64_t count = x.numel();
    relu_kernel<<<count / 256 + 1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), count);
    return y;
}
"""

module = load_inline(
    name="overrunning_relu",
    cpp_sources="torch::Tensor relu(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.relu(x.contiguous())

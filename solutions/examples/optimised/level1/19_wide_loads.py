"""Four values a thread and step, as one 16-byte load and store; a grid-stride loop keeps the number of blocks at what
the GPU holds at once."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void relu_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t count) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t fours = count / 4;
    const float4* x4 = reinterpret_cast<const float4*>(x);
    float4* y4 = reinterpret_cast<float4*>(y);
    for (int64_t i = first; i < fours; i += step) {
        float4 v = x4[i];
        v.x = v.x > 0.0f ? v.x : 0.0f;
        v.y = v.y > 0.0f ? v.y : 0.0f;
        v.z = v.z > 0.0f ? v.z : 0.0f;
        v.w = v.w > 0.0f ? v.w : 0.0f;
        y4[i] = v;
    }
    for (int64_t i = 4 * fours + first; i < count; i += step) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

torch::Tensor relu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int64_t count = x.numel();
    const int64_t wanted = (count / 4 + 255) / 256;
    const int blocks = (int)(wanted < 1 ? 1 : wanted < 132 * 8 ? wanted : 132 * 8);
    relu_kernel<<<blocks, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), count);
    return y;
}
"""

module = load_inline(
    name="wide_relu",
    cpp_sources="torch::Tensor relu(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.relu(x.contiguous())

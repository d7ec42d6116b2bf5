"""One thread handles all features of one pixel: neighbouring threads read neighbouring pixels, so every load is
coalesced although the features lie far apart. The second read of the values is served by the cache."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void rms_norm_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t pixels, int64_t plane,
                                int features, float eps) {
    int64_t pixel = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= pixels) return;
    const int64_t start = pixel / plane * plane * features + pixel % plane;
    float squares = 0.0f;
    for (int f = 0; f < features; ++f) {
        float v = x[start + f * plane];
        squares += v * v;
    }
    const float inverse = 1.0f / sqrtf(squares / features + eps);
    for (int f = 0; f < features; ++f) y[start + f * plane] = x[start + f * plane] * inverse;
}

torch::Tensor rms_norm(torch::Tensor x, double eps) {
    auto y = torch::empty_like(x);
    const int64_t plane = x.size(2) * x.size(3), pixels = x.size(0) * plane;
    rms_norm_kernel<<<(pixels + 127) / 128, 128>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), pixels, plane, (int)x.size(1), (float)eps);
    return y;
}
"""

module = load_inline(
    name="pixel_rms_norm",
    cpp_sources="torch::Tensor rms_norm(torch::Tensor x, double eps);",
    cuda_sources=CUDA,
    functions=["rms_norm"],
)


class ModelNew(nn.Module):
    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.rms_norm(x.contiguous(), self.eps)

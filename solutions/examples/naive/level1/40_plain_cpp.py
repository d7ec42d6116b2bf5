"""No CUDA at all: layer normalisation in C++ on the CPU's threads. Given a GPU tensor it copies it over and
back, which is why it is slow there."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/extension.h>
#include <ATen/Parallel.h>
#include <cmath>

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    auto input = x.cpu().contiguous();
    auto w = weight.cpu().contiguous();
    auto b = bias.cpu().contiguous();
    auto output = torch::empty_like(input);
    const int64_t rows = input.size(0);
    const int64_t length = w.numel();
    const float* in = input.data_ptr<float>();
    const float* scale = w.data_ptr<float>();
    const float* shift = b.data_ptr<float>();
    float* out = output.data_ptr<float>();
    at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const float* values = in + row * length;
            double sum = 0.0;
            for (int64_t i = 0; i < length; ++i) sum += values[i];
            const double mean = sum / length;
            double squares = 0.0;
            for (int64_t i = 0; i < length; ++i) squares += (values[i] - mean) * (values[i] - mean);
            const double inverse = 1.0 / std::sqrt(squares / length + eps);
            for (int64_t i = 0; i < length; ++i)
                out[row * length + i] = (float)((values[i] - mean) * inverse * scale[i] + shift[i]);
        }
    });
    return output.to(x.device());
}
"""

module = load_inline(name="plain_cpp_layer_norm", cpp_sources=CPP, functions=["layer_norm"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, normalized_shape: tuple) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.layer_norm(x, self.ln.weight.detach(), self.ln.bias.detach(), self.ln.eps)

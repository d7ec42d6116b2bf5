"""Depthwise 3 x 3 convolution that reads every image once.

A thread owns four neighbouring columns and slides down sixteen rows of the result: each row of the image is loaded
once (16 bytes, and the two values to the right from the first-level cache), and adds to the three rows of sums that
it touches, which stay in registers.

Bytes: 2 GiB read and written once, and an eighth of the image again at the seams. Flops: 4.8 Gflop, of no account.
Reached on an H200: 83 % of the speed of light of the reference's work (memory), 610 us.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 128, ROWS = 16;

// One plane of one image a blockIdx.z. `width` is a multiple of 4; the result is two columns and rows smaller.
__global__ void __launch_bounds__(THREADS)
    three_by_three_kernel(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
                          float* __restrict__ y, int channels, int height, int width) {
    const int column = (blockIdx.x * THREADS + threadIdx.x) * 4, first = blockIdx.y * ROWS;
    const int out_height = height - 2, out_width = width - 2, channel = blockIdx.z % channels;
    if (column >= out_width) return;
    x += (int64_t)blockIdx.z * height * width + (int64_t)first * width + column;
    y += (int64_t)blockIdx.z * out_height * out_width + (int64_t)first * out_width + column;
    float w[3][3];
#pragma unroll
    for (int i = 0; i < 9; ++i) w[i / 3][i % 3] = weight[channel * 9 + i];
    const float offset = bias ? bias[channel] : 0.0f;
    const int count = min(ROWS, out_height - first);
    float above[4], middle[4];  // sums of the two rows begun already
#pragma unroll
    for (int e = 0; e < 4; ++e) above[e] = middle[e] = 0.0f;
#pragma unroll 6
    for (int row = 0; row < count + 2; ++row, x += width) {
        const float4 four = *reinterpret_cast<const float4*>(x);
        const float2 right = column + 4 < width ? *reinterpret_cast<const float2*>(x + 4) : make_float2(0.0f, 0.0f);
        const float v[6] = {four.x, four.y, four.z, four.w, right.x, right.y};
        float done[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            done[e] = above[e] + w[2][0] * v[e] + w[2][1] * v[e + 1] + w[2][2] * v[e + 2];
            above[e] = middle[e] + w[1][0] * v[e] + w[1][1] * v[e + 1] + w[1][2] * v[e + 2];
            middle[e] = offset + w[0][0] * v[e] + w[0][1] * v[e + 1] + w[0][2] * v[e + 2];
        }
        if (row >= 2) {
            // The result's rows start at multiples of eight bytes, since its width is even.
            *reinterpret_cast<float2*>(y) = make_float2(done[0], done[1]);
            if (column + 2 < out_width) *reinterpret_cast<float2*>(y + 2) = make_float2(done[2], done[3]);
            y += out_width;
        }
    }
}

// Any square size: one thread a result.
__global__ void __launch_bounds__(THREADS)
    any_kernel(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
               float* __restrict__ y, int64_t size, int channels, int height, int width, int kernel) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= size) return;
    const int out_width = width - kernel + 1, out_height = height - kernel + 1;
    const int column = (int)(i % out_width), row = (int)(i / out_width % out_height);
    const int64_t plane = i / out_width / out_height;
    const int channel = (int)(plane % channels);
    float sum = bias ? bias[channel] : 0.0f;
    for (int r = 0; r < kernel; ++r)
        for (int s = 0; s < kernel; ++s)
            sum += weight[(channel * kernel + r) * kernel + s] * x[(plane * height + row + r) * width + column + s];
    y[i] = sum;
}

torch::Tensor depthwise(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    const int64_t batch = x.size(0), channels = x.size(1), height = x.size(2), width = x.size(3),
                  kernel = weight.size(2);
    auto y = torch::empty({batch, channels, height - kernel + 1, width - kernel + 1}, x.options());
    auto stream = c10::cuda::getCurrentCUDAStream();
    const float *x_at = x.data_ptr<float>(), *weight_at = weight.data_ptr<float>(), *bias_at = bias.data_ptr<float>();
    const int64_t planes = batch * channels;
    if (kernel == 3 && width % 4 == 0 && planes < 65536 && reinterpret_cast<uintptr_t>(x_at) % 16 == 0) {
        const dim3 blocks((unsigned)((width + 4 * THREADS - 1) / (4 * THREADS)),
                          (unsigned)((height - 2 + ROWS - 1) / ROWS), (unsigned)planes);
        three_by_three_kernel<<<blocks, THREADS, 0, stream>>>(x_at, weight_at, bias_at, y.data_ptr<float>(),
                                                              (int)channels, (int)height, (int)width);
    } else {
        any_kernel<<<(unsigned)((y.numel() + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
            x_at, weight_at, bias_at, y.data_ptr<float>(), y.numel(), (int)channels, (int)height, (int)width,
            (int)kernel);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

module = load_inline(
    name="depthwise_sliding_rows",
    cpp_sources="torch::Tensor depthwise(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);",
    cuda_sources=CUDA,
    functions=["depthwise"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, groups=groups)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.depthwise(x.contiguous(), self.conv.weight.detach(), self.conv.bias.detach())

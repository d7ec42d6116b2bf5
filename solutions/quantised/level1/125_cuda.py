"""A warp a block of 32 values; the scale is a power of two, so that scaling is exact."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#define ROUNDED(v) __nv_fp8_e4m3(v)

__global__ void quantise(const float* x, __nv_fp8_e4m3* codes, unsigned char* scales, long count) {
    const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;  // whole warps, as 32 divides the count
    if (i >= count) return;
    float largest = fabsf(x[i]);
    for (int off = 16; off; off >>= 1) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, off));
    const int shared = ilogbf(largest) - 8;
    codes[i] = ROUNDED(ldexpf(x[i], -shared));
    if (i % 32 == 0) scales[i / 32] = (unsigned char)(shared + 127);
}

std::vector<torch::Tensor> quantise_blocks(torch::Tensor x) {
    auto codes = torch::empty(x.sizes(), x.options().dtype(torch::kFloat8_e4m3fn));
    auto scales = torch::empty({x.size(0), x.size(1) / 32}, x.options().dtype(torch::kUInt8));
    quantise<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), (__nv_fp8_e4m3*)codes.data_ptr(), scales.data_ptr<uint8_t>(),
                                               x.numel());
    return {codes, scales};
}
"""

module = load_inline(
    name="quantised_125",
    cpp_sources="std::vector<torch::Tensor> quantise_blocks(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["quantise_blocks"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        codes, scales = module.quantise_blocks(x)
        return codes, scales

/*
summary: Three-dimensional grid and block, one group a block
inputs:
  x: normal(2, 6, 5, 7)
outputs:
  y: new(2, 6, 5, 7)
sizes: [2, 6, 35, 3]
expected:
  y: F.group_norm(x.double(), 3)
tolerance: 1.0e-4
*/
#include <cuda_runtime.h>

__global__ void group_norm(const float* x, float* y, int channels, int area, int groups) {
    const int count = channels / groups * area;
    const size_t base = ((size_t)blockIdx.z * groups + blockIdx.y) * count;
    const int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const int threads = blockDim.x * blockDim.y * blockDim.z;
    __shared__ float sum, squares;
    if (t == 0) sum = squares = 0.0f;
    __syncthreads();
    float a = 0.0f, b = 0.0f;
    for (int i = t; i < count; i += threads) {
        const float v = x[base + i];
        a += v;
        b += v * v;
    }
    atomicAdd(&sum, a);
    atomicAdd(&squares, b);
    __syncthreads();
    const float mean = sum / count, variance = squares / count - mean * mean;
    for (int i = t; i < count; i += threads) y[base + i] = (x[base + i] - mean) * rsqrtf(variance + 1e-5f);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    group_norm<<<dim3(1, (unsigned)size[3], (unsigned)size[0]), dim3(4, 4, 2)>>>(
        (const float*)in[0], (float*)out[0], (int)size[1], (int)size[2], (int)size[3]);
}

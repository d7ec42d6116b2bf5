/*
summary: 400 KiB of local arrays in threads that meet at a barrier
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
expected:
  y: x.double().mul(100000).float()
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

__global__ void fill(const float* x, float* y) {
    __shared__ float all[64];
    float mine[100000];
    for (int i = 0; i < 100000; i += 500) mine[i] = x[threadIdx.x];
    all[threadIdx.x] = 0.0f;
    __syncthreads();
    double sum = 0.0;
    for (int i = 0; i < 100000; i += 500) sum += mine[i];
    y[threadIdx.x] = (float)(sum * 500.0) + all[63 - threadIdx.x];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    fill<<<1, (int)size[0]>>>((const float*)in[0], (float*)out[0]);
}

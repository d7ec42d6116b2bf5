/*
summary: The left halo of the first block is read before the array begins
twin: conv1d_halo
inputs:
  x: normal(256)
outputs:
  y: new(256)
sizes: [256]
defect:
  status: memory_error
  kernel: smooth
  tool: memcheck
*/
#include <cuda_runtime.h>

__global__ void smooth(const float* x, float* y, int n) {
    __shared__ float s[66];
    const int i = blockIdx.x * 64 + threadIdx.x;
    s[threadIdx.x + 1] = x[i];
    if (threadIdx.x == 0) s[0] = x[i - 1];  // defect
    if (threadIdx.x == 63) s[65] = i + 1 < n ? x[i + 1] : 0.0f;
    __syncthreads();
    y[i] = (s[threadIdx.x] + s[threadIdx.x + 1] + s[threadIdx.x + 2]) / 3.0f;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    smooth<<<4, 64>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

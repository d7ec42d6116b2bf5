/*
summary: One element past a static shared array
twin: conv1d_halo
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
defect:
  status: memory_error
  kernel: shift
  tool: memcheck
*/
#include <cuda_runtime.h>

__global__ void shift(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x + 1];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    shift<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}

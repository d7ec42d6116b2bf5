/*
summary: Grid-stride loop, more elements than threads
inputs:
  a: normal(3001)
  b: normal(3001)
outputs:
  c: new(3001)
sizes: [3001]
expected:
  c: a + b
*/
#include <cuda_runtime.h>

__global__ void vector_add(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    vector_add<<<4, 128>>>((const float*)in[0], (const float*)in[1], (float*)out[0], (int)size[0]);
}

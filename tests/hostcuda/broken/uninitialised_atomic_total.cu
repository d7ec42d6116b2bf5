/*
summary: atomicAdd into memory from cudaMalloc without cudaMemset
twin: reduce_shuffle
inputs:
  x: normal(64)
outputs:
  total: new(1)
sizes: [64]
defect:
  status: uninitialised_read
  kernel: add
  tool: initcheck
*/
#include <cuda_runtime.h>

__global__ void add(const float* x, float* total) { atomicAdd(total, x[threadIdx.x]); }  // defect

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    add<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}

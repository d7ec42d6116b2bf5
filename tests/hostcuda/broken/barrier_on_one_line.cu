/*
summary: Threads of one block wait at two barriers that stand on one line
twin: reduce_tree
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
defect:
  status: barrier_error
  kernel: parted
  tool: null
*/
#include <cuda_runtime.h>

__global__ void parted(const float* x, float* y) {
    const int i = threadIdx.x;
    if (i < 32) __syncthreads(); else __syncthreads();  // defect
    y[i] = x[i];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    parted<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}

/*
summary: Threads of one block wait at two barriers of one macro
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
#define WAIT_PARTED(first) do { if (first) __syncthreads(); else __syncthreads(); } while (0)

__global__ void parted(const float* x, float* y) {
    const int i = threadIdx.x;
    WAIT_PARTED(i < 32);  // defect
    y[i] = x[i];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    parted<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}

/*
summary: __syncthreads in a branch that half of the block takes
twin: reduce_tree
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
defect:
  status: barrier_error
  kernel: shift
  tool: synccheck
*/
#include <cuda_runtime.h>

__global__ void shift(const float* x, float* y) {
    __shared__ float s[64];
    const int t = threadIdx.x;
    s[t] = x[t];
    if (t < 40) {
        __syncthreads();  // defect
        y[t] = s[t + 1];
    } else {
        y[t] = s[t];
    }
    __syncthreads();  // defect
    if (t == 0) y[0] += 1.0f;
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    shift<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}

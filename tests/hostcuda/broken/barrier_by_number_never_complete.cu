/*
summary: A numbered barrier waits for more warps than ever come
twin: named_barriers
inputs:
  x: normal(96)
outputs:
  y: new(96)
sizes: [96]
defect:
  status: barrier_error
  kernel: turned
  tool: synccheck
*/
#include <cuda_runtime.h>

__global__ void turned(const float* x, float* y) {
    __shared__ float held[96];
    held[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 64) {
        asm volatile("bar.sync 1, 96;" ::: "memory");  // defect
        y[threadIdx.x] = held[63 - threadIdx.x];
    } else {
        asm volatile("bar.sync 2, 96;" ::: "memory");
        y[threadIdx.x] = held[threadIdx.x];
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    turned<<<1, 96>>>((const float*)in[0], (float*)out[0]);
}

/*
summary: A thread waits at the barrier of its cluster where it never arrived
twin: cluster_ptx
inputs:
  x: normal(512)
outputs:
  y: new(512)
sizes: [512]
arch: 90
defect:
  status: barrier_error
  kernel: wait_only
  tool: null
*/
#include <cuda_runtime.h>

__global__ void __cluster_dims__(2, 1, 1) wait_only(const float* x, float* y) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (threadIdx.x >= 32) asm volatile("barrier.cluster.arrive;" ::: "memory");
    asm volatile("barrier.cluster.wait;" ::: "memory");  // defect
    y[i] = x[i];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    wait_only<<<4, 128>>>((const float*)in[0], (float*)out[0]);
}

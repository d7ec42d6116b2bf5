/*
summary: The source of a copy in flight is overwritten before anything waits for the copy
twin: cp_async_pipeline
inputs:
  x: normal(64)
outputs:
  work: normal(64)
  y: new(64)
sizes: [64]
arch: 80
defect:
  status: data_race
  kernel: reuse
  tool: null
*/
#include <cuda_runtime.h>

__global__ void reuse(const float* x, float* work, float* y) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    const unsigned to = (unsigned)__cvta_generic_to_shared(&tile[t]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(work + t) : "memory");  // defect
    asm volatile("cp.async.commit_group;" ::: "memory");
    work[t] = x[t];  // defect
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    y[t] = tile[t];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    reuse<<<1, (int)size[0]>>>((const float*)in[0], (float*)out[0], (float*)out[1]);
}

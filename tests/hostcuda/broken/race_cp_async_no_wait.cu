/*
summary: cp.async is committed but not waited for before the tile is used
twin: cp_async_pipeline
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
arch: 80
defect:
  status: data_race
  kernel: reverse
  tool: racecheck
*/
#include <cuda_runtime.h>

__global__ void reverse(const float* x, float* y) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    const unsigned to = (unsigned)__cvta_generic_to_shared(&tile[t]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");  // defect
    asm volatile("cp.async.commit_group;" ::: "memory");
    __syncthreads();
    y[t] = tile[63 - t];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    reverse<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}

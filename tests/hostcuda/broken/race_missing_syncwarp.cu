/*
summary: Lanes exchange through shared memory without __syncwarp
twin: warp_synchronous
inputs:
  x: normal(128)
outputs:
  y: new(128)
sizes: [128]
defect:
  status: data_race
  kernel: exchange
  tool: racecheck
*/
#include <cuda_runtime.h>

__global__ void exchange(const float* x, float* y) {
    __shared__ float s[4][32];
    const int t = threadIdx.x, warp = t >> 5, lane = t & 31;
    s[warp][lane] = x[t];          // defect
    y[t] = s[warp][31 - lane];     // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    exchange<<<1, 128>>>((const float*)in[0], (float*)out[0]);
}

/*
summary: The second half of a block reads what the first half writes behind a barrier that only the second half has
twin: named_barriers
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
defect:
  status: data_race
  kernel: hand_over
  tool: racecheck
*/
#include <cuda_runtime.h>

__global__ void hand_over(const float* x, float* y) {
    __shared__ float held[64];
    const int t = threadIdx.x % 64;
    if (threadIdx.x < 64) {
        held[t] = x[t];  // defect
        asm volatile("bar.sync 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 2, 64;" ::: "memory");
        y[t] = held[63 - t];  // defect
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    hand_over<<<1, 128>>>((const float*)in[0], (float*)out[0]);
}

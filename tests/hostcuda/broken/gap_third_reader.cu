/*
summary: A write behind a barrier of four warps that read the place, but not behind the fifth, in the middle, which reads it too
twin: named_barriers
inputs:
  x: normal(160)
outputs:
  y: new(160)
sizes: [160]
defect:
  status: data_race
  kernel: overwrite
  tool: racecheck
known_gap: each place remembers two readers, which in either order of execution are among those that the writer waits for
*/
#include <cuda_runtime.h>

__global__ void overwrite(const float* x, float* y) {
    __shared__ float first;
    const int t = threadIdx.x;
    if (t == 0) first = x[0];
    __syncthreads();
    y[t] = first + x[t];  // defect
    if (t / 32 != 2) asm volatile("bar.sync 1, 128;" ::: "memory");
    if (t == 0) first = y[0];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    overwrite<<<1, (int)size[0]>>>((const float*)in[0], (float*)out[0]);
}

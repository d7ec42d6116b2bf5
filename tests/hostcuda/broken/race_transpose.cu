/*
summary: Transpose through shared memory without a barrier
twin: transpose_tiled
inputs:
  x: normal(32, 32)
outputs:
  y: new(32, 32)
sizes: [32]
defect:
  status: data_race
  kernel: transpose
  tool: racecheck
*/
#include <cuda_runtime.h>

__global__ void transpose(const float* x, float* y, int n) {
    __shared__ float tile[32][33];
    for (int j = threadIdx.y; j < 32; j += 8) tile[j][threadIdx.x] = x[j * n + threadIdx.x];  // defect
    for (int j = threadIdx.y; j < 32; j += 8) y[j * n + threadIdx.x] = tile[threadIdx.x][j];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    transpose<<<1, dim3(32, 8)>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

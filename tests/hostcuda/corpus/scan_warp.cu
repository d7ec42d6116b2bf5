/*
summary: Scan with __shfl_up_sync, one row a warp
inputs:
  x: normal(16, 32)
outputs:
  y: new(16, 32)
sizes: [16]
expected:
  y: x.double().cumsum(1)
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

__global__ void scan_rows(const float* x, float* y, int rows) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;
    if (row >= rows) return;
    float v = x[row * 32 + lane];
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        const float other = __shfl_up_sync(0xffffffffu, v, d);
        if (lane >= d) v += other;
    }
    y[row * 32 + lane] = v;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    scan_rows<<<3, dim3(32, 6)>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

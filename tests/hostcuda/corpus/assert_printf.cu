/*
summary: assert that holds, printf that is not reached, early return before no barrier
inputs:
  x: uniform(100)
outputs:
  y: new(100)
sizes: [100]
expected:
  y: x.log1p()
tolerance: 1.0e-5
*/
#include <cassert>
#include <cstdio>
#include <cuda_runtime.h>

__global__ void logs(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    assert(x[i] >= 0.0f);
    if (x[i] > 2.0f) printf("out of range at %d: %f\n", i, x[i]);
    y[i] = log1pf(x[i]);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    logs<<<2, 64>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

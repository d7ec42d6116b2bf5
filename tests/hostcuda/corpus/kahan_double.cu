/*
summary: Compensated sums in float against a double accumulator, __fadd_rn keeps the compiler from simplifying
inputs:
  x: normal(64, 200) * 1000
outputs:
  y: new(64)
sizes: [64, 200]
expected:
  y: x.double().sum(1)
tolerance: 1.0e-6
*/
#include <cuda_runtime.h>

__global__ void kahan(const float* x, float* y, int columns) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f, lost = 0.0f;
    for (int i = 0; i < columns; ++i) {
        const float v = __fsub_rn(x[row * columns + i], lost);
        const float next = __fadd_rn(sum, v);
        lost = __fsub_rn(__fsub_rn(next, sum), v);
        sum = next;
    }
    y[row] = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    kahan<<<2, 32>>>((const float*)in[0], (float*)out[0], (int)size[1]);
}

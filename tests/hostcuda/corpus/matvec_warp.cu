/*
summary: One row a warp, float2 loads, butterfly shuffles
inputs:
  a: normal(21, 130)
  x: normal(130)
outputs:
  y: new(21)
sizes: [21, 130]
expected:
  y: a.double() @ x.double()
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

__global__ void matvec(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int rows, int columns) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    const int lane = threadIdx.x & 31;
    if (row >= rows) return;
    const float2* pairs = reinterpret_cast<const float2*>(a + (size_t)row * columns);
    const float2* vector = reinterpret_cast<const float2*>(x);
    float sum = 0.0f;
    for (int i = lane; i < columns / 2; i += 32) {
        const float2 p = __ldg(&pairs[i]), q = __ldg(&vector[i]);
        sum += p.x * q.x + p.y * q.y;
    }
    for (int mask = 16; mask > 0; mask >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (lane == 0) y[row] = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    matvec<<<6, 128>>>((const float*)in[0], (const float*)in[1], (float*)out[0], (int)size[0], (int)size[1]);
}

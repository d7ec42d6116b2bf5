/*
summary: A shared matrix walked past the end of its first row, on the same lines as local arrays
inputs:
  x: normal(3, 96)
outputs:
  y: new(3, 96)
sizes: [3]
expected:
  y: 3 * x.flip(1)
*/
#include <cuda_runtime.h>
#define WHOLE(at) tile[0][at]

struct Weights {
    float of[3];
};

__global__ void flip(const float* x, float* y) {
    __shared__ float tile[2][48];
    __shared__ Weights weights[2][1];
    float mine[3];
    for (int i = 0; i < 3; ++i) tile[0][threadIdx.x + 32 * i] = mine[i] = x[blockIdx.x * 96 + threadIdx.x + 32 * i];
    if (threadIdx.x < 6) weights[0][threadIdx.x / 3].of[threadIdx.x % 3] = 1.0f + threadIdx.x / 3;
    __syncthreads();
    for (int i = 0; i < 3; ++i) mine[i] = tile[1][47 - (int)threadIdx.x - 32 * i] * weights[0][1].of[i];
    for (int i = 0; i < 3; ++i) mine[i] += WHOLE(95 - threadIdx.x - 32 * i) + 0.0f * tile[0][i];
    for (int i = 0; i < 3; ++i) y[blockIdx.x * 96 + threadIdx.x + 32 * i] = mine[i];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    flip<<<(int)size[0], 32>>>((const float*)in[0], (float*)out[0]);
}

/*
summary: A local array is read before its begin, on a line that walks a shared matrix
twin: shared_as_a_whole
inputs:
  x: normal(3, 96)
outputs:
  y: new(3, 96)
sizes: [3]
defect:
  status: memory_error
  kernel: flip
  tool: null
*/
#include <cuda_runtime.h>
#define WHOLE(at) tile[0][at]

struct Weights {
    float of[3];
};

__global__ void flip(const float* x, float* y) {
    __shared__ float tile[2][48];
    __shared__ Weights weights[2][1];
    float triple[3] = {};
    for (int i = 0; i < 3; ++i) tile[0][threadIdx.x + 32 * i] = triple[i] = x[blockIdx.x * 96 + threadIdx.x + 32 * i] + 0.0f * triple[i - 1];  // defect
    if (threadIdx.x < 6) weights[0][threadIdx.x / 3].of[threadIdx.x % 3] = 1.0f + threadIdx.x / 3;
    __syncthreads();
    for (int i = 0; i < 3; ++i) triple[i] = tile[1][47 - (int)threadIdx.x - 32 * i] * weights[0][1].of[i];
    for (int i = 0; i < 3; ++i) triple[i] += WHOLE(95 - threadIdx.x - 32 * i) + 0.0f * tile[0][i];
    for (int i = 0; i < 3; ++i) y[blockIdx.x * 96 + threadIdx.x + 32 * i] = triple[i];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    flip<<<(int)size[0], 32>>>((const float*)in[0], (float*)out[0]);
}

/*
summary: One row a block, maximum and sum through dynamic shared memory
inputs:
  x: normal(9, 200) * 4
outputs:
  y: new(9, 200)
sizes: [9, 200]
expected:
  y: x.double().softmax(1)
tolerance: 1.0e-5
*/
#include <cfloat>
#include <cuda_runtime.h>

__global__ void softmax(const float* x, float* y, int columns) {
    extern __shared__ float s[];
    const float* from = x + blockIdx.x * columns;
    float* to = y + blockIdx.x * columns;
    const int t = threadIdx.x;
    float largest = -FLT_MAX;
    for (int i = t; i < columns; i += blockDim.x) largest = fmaxf(largest, from[i]);
    s[t] = largest;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (t < d) s[t] = fmaxf(s[t], s[t + d]);
        __syncthreads();
    }
    largest = s[0];
    __syncthreads();
    float sum = 0.0f;
    for (int i = t; i < columns; i += blockDim.x) {
        const float e = __expf(from[i] - largest);
        to[i] = e;
        sum += e;
    }
    s[t] = sum;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    const float scale = 1.0f / s[0];
    for (int i = t; i < columns; i += blockDim.x) to[i] *= scale;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    softmax<<<(int)size[0], 64, 64 * sizeof(float)>>>((const float*)in[0], (float*)out[0], (int)size[1]);
}

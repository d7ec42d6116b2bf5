/*
summary: Top four a row, each thread keeps a sorted list in registers, lists merged through shared memory
inputs:
  x: normal(5, 160)
outputs:
  y: new(5, 4)
sizes: [5, 160]
expected:
  y: x.topk(4, 1).values
*/
#include <cuda_runtime.h>
#define K 4

__device__ void insert(float (&list)[K], float v) {
#pragma unroll
    for (int i = 0; i < K; ++i)
        if (v > list[i]) {
            const float t = list[i];
            list[i] = v;
            v = t;
        }
}

__global__ void top_k(const float* x, float* y, int columns) {
    __shared__ float lists[32][K];
    float mine[K];
    for (int i = 0; i < K; ++i) mine[i] = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += 32) insert(mine, x[blockIdx.x * columns + i]);
    for (int d = 16; d > 0; d /= 2) {
        for (int i = 0; i < K; ++i) lists[threadIdx.x][i] = mine[i];
        __syncthreads();
        if (threadIdx.x < d)
            for (int i = 0; i < K; ++i) insert(mine, lists[threadIdx.x + d][i]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        for (int i = 0; i < K; ++i) y[blockIdx.x * K + i] = mine[i];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    top_k<<<(int)size[0], 32>>>((const float*)in[0], (float*)out[0], (int)size[1]);
}

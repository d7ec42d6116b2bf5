/*
summary: Tiles of both factors in shared memory, two barriers a tile
inputs:
  a: normal(50, 37)
  b: normal(37, 41)
outputs:
  c: new(50, 41)
sizes: [50, 41, 37]
expected:
  c: a.double() @ b.double()
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>
#define TILE 16

__global__ void matmul_tiled(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[TILE][TILE];
    __shared__ float bs[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < (k + TILE - 1) / TILE; ++t) {
        const int ak = t * TILE + threadIdx.x, bk = t * TILE + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = row < m && ak < k ? a[row * k + ak] : 0.0f;
        bs[threadIdx.y][threadIdx.x] = bk < k && column < n ? b[bk * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int m = (int)size[0], n = (int)size[1], k = (int)size[2];
    matmul_tiled<<<dim3((n + TILE - 1) / TILE, (m + TILE - 1) / TILE), dim3(TILE, TILE)>>>(
        (const float*)in[0], (const float*)in[1], (float*)out[0], m, n, k);
}

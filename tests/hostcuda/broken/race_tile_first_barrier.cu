/*
summary: matmul_tiled without the barrier between filling the tiles and using them
twin: matmul_tiled
inputs:
  a: normal(32, 32)
  b: normal(32, 32)
outputs:
  c: new(32, 32)
sizes: [32]
defect:
  status: data_race
  kernel: matmul_tiled
  tool: racecheck
*/
#include <cuda_runtime.h>
#define TILE 16

__global__ void matmul_tiled(const float* a, const float* b, float* c, int n) {
    __shared__ float as[TILE][TILE];
    __shared__ float bs[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < n / TILE; ++t) {
        as[threadIdx.y][threadIdx.x] = a[row * n + t * TILE + threadIdx.x];       // defect
        bs[threadIdx.y][threadIdx.x] = b[(t * TILE + threadIdx.y) * n + column];  // defect
        for (int i = 0; i < TILE; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];  // defect
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    matmul_tiled<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>((const float*)in[0], (const float*)in[1], (float*)out[0], n);
}

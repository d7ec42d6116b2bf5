/*
summary: Two buffers a factor, the next tile is loaded while the current one is used, one barrier a tile
inputs:
  a: normal(32, 64)
  b: normal(64, 32)
outputs:
  c: new(32, 32)
sizes: [32, 32, 64]
expected:
  c: a.double() @ b.double()
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>
#define T 16

__global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[2][T][T], bs[2][T][T];
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * T + y, column = blockIdx.x * T + x;
    const int tiles = k / T;
    as[0][y][x] = a[row * k + x];
    bs[0][y][x] = b[y * n + column];
    __syncthreads();
    float sum = 0.0f;
    for (int t = 0; t < tiles; ++t) {
        const int now = t & 1, next = now ^ 1;
        if (t + 1 < tiles) {
            as[next][y][x] = a[row * k + (t + 1) * T + x];
            bs[next][y][x] = b[((t + 1) * T + y) * n + column];
        }
        for (int i = 0; i < T; ++i) sum += as[now][y][i] * bs[now][i][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int m = (int)size[0], n = (int)size[1], k = (int)size[2];
    matmul<<<dim3(n / T, m / T), dim3(T, T)>>>((const float*)in[0], (const float*)in[1], (float*)out[0], m, n, k);
}

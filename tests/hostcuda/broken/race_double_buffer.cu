/*
summary: Double buffer with one barrier a tile, but the next tile goes into the buffer in use
twin: matmul_double_buffer
inputs:
  a: normal(16, 64)
  b: normal(64, 16)
outputs:
  c: new(16, 16)
sizes: [16, 16, 64]
defect:
  status: data_race
  kernel: matmul
  tool: racecheck
*/
#include <cuda_runtime.h>
#define T 16

__global__ void matmul(const float* a, const float* b, float* c, int n, int k) {
    __shared__ float as[2][T][T], bs[2][T][T];
    const int x = threadIdx.x, y = threadIdx.y;
    as[0][y][x] = a[y * k + x];
    bs[0][y][x] = b[y * n + x];
    __syncthreads();
    float sum = 0.0f;
    for (int t = 0; t < k / T; ++t) {
        const int now = t & 1, next = (t + 2) & 1;
        if (t + 1 < k / T) {
            as[next][y][x] = a[y * k + (t + 1) * T + x];    // defect
            bs[next][y][x] = b[((t + 1) * T + y) * n + x];  // defect
        }
        for (int i = 0; i < T; ++i) sum += as[now][y][i] * bs[now][i][x];  // defect
        __syncthreads();
    }
    c[y * n + x] = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    matmul<<<1, dim3(T, T)>>>((const float*)in[0], (const float*)in[1], (float*)out[0], (int)size[1], (int)size[2]);
}

/*
summary: One thread an element of the product
inputs:
  a: normal(33, 40)
  b: normal(40, 29)
outputs:
  c: new(33, 29)
sizes: [33, 29, 40]
expected:
  c: a.double() @ b.double()
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

__global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m && column < n) {
        float sum = 0.0f;
        for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
        c[row * n + column] = sum;
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int m = (int)size[0], n = (int)size[1], k = (int)size[2];
    dim3 block(16, 16);
    dim3 grid((n + block.x - 1) / block.x, (m + block.y - 1) / block.y);
    matmul<<<grid, block>>>((const float*)in[0], (const float*)in[1], (float*)out[0], m, n, k);
}

/*
summary: Product of int8 matrices with __dp4a, char4 loads
inputs:
  a: integers(-128, 128, 24, 32).to(torch.int8)
  b: integers(-128, 128, 20, 32).to(torch.int8)
outputs:
  c: new(24, 20, dtype=torch.int32)
sizes: [24, 20, 32]
expected:
  c: a.int() @ b.int().t()
*/
#include <cuda_runtime.h>

__global__ void matmul(const char4* a, const char4* b, int* c, int n, int quads) {
    const int row = blockIdx.x, column = threadIdx.x;
    int sum = 0;
    for (int i = 0; i < quads; ++i) sum = __dp4a(a[row * quads + i], b[column * quads + i], sum);
    c[row * n + column] = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    matmul<<<(int)size[0], (int)size[1]>>>((const char4*)in[0], (const char4*)in[1], (int*)out[0], (int)size[1], (int)size[2] / 4);
}

/*
summary: __syncthreads_count, _and and _or
inputs:
  x: integers(0, 10, 4, 64)
outputs:
  y: new(4, 3, dtype=torch.int32)
sizes: [4]
expected:
  y: torch.stack([(x > 4).sum(1), (x >= 0).all(1), (x > 8).any(1)], 1).to(torch.int32)
*/
#include <cuda_runtime.h>

__global__ void votes(const int* x, int* y) {
    const int v = x[blockIdx.x * 64 + threadIdx.x];
    const int above = __syncthreads_count(v > 4);
    const int all = __syncthreads_and(v >= 0);
    const int any = __syncthreads_or(v > 8);
    if (threadIdx.x == 0) {
        y[blockIdx.x * 3] = above;
        y[blockIdx.x * 3 + 1] = all != 0;
        y[blockIdx.x * 3 + 2] = any != 0;
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    votes<<<(int)size[0], 64>>>((const int*)in[0], (int*)out[0]);
}

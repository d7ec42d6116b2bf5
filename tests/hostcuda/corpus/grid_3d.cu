/*
summary: Three-dimensional grid and block, dim3 defaults, linear block index
inputs:
  x: normal(4, 6, 8)
outputs:
  y: new(4, 6, 8)
  order: new(8, dtype=torch.int32)
sizes: [4, 6, 8]
expected:
  y: x.flip(0, 1, 2)
  order: torch.arange(8, dtype=torch.int32)
*/
#include <cuda_runtime.h>

__global__ void flip(const float* x, float* y, int* order, dim3 extent) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned k = blockIdx.z * blockDim.z + threadIdx.z;
    const unsigned from = (k * extent.y + j) * extent.x + i;
    const unsigned to = ((extent.z - 1 - k) * extent.y + extent.y - 1 - j) * extent.x + extent.x - 1 - i;
    y[to] = x[from];
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) order[block] = (int)block;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const dim3 extent((unsigned)size[2], (unsigned)size[1], (unsigned)size[0]);
    flip<<<dim3(2, 2, 2), dim3(4, 3, 2)>>>((const float*)in[0], (float*)out[0], (int*)out[1], extent);
}

/*
summary: Gather rows, then scatter-add gradients with atomics
inputs:
  table: normal(20, 12)
  ids: integers(0, 20, 50)
outputs:
  rows: new(50, 12)
  gradient: zeros(20, 12)
sizes: [50, 12]
expected:
  rows: table[ids.long()]
  gradient: torch.zeros(20, 12, dtype=torch.float64).index_add_(0, ids.long(), table.double()[ids.long()] * 0.5)
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

__global__ void gather(const float* table, const int* ids, float* rows, int width) {
    rows[blockIdx.x * width + threadIdx.x] = table[ids[blockIdx.x] * width + threadIdx.x];
}
__global__ void scatter(const float* rows, const int* ids, float* gradient, int width) {
    atomicAdd(gradient + ids[blockIdx.x] * width + threadIdx.x, 0.5f * rows[blockIdx.x * width + threadIdx.x]);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int count = (int)size[0], width = (int)size[1];
    gather<<<count, width>>>((const float*)in[0], (const int*)in[1], (float*)out[0], width);
    scatter<<<count, width>>>((const float*)out[0], (const int*)in[1], (float*)out[1], width);
}

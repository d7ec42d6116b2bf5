/*
summary: Sparse matrix (CSR) times vector, rows of different length, sub-warps of eight lanes
inputs:
  offsets: torch.tensor([0, 3, 3, 10, 30, 31, 33, 60, 64], dtype=torch.int32)
  columns: integers(0, 40, 64)
  values: normal(64)
  x: normal(40)
outputs:
  y: new(8)
sizes: [8]
expected:
  y: torch.stack([(values.double()[a:b] * x.double()[columns.long()[a:b]]).sum() for a, b in zip(offsets[:-1], offsets[1:])])
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

__global__ void spmv(const int* offsets, const int* columns, const float* values, const float* x, float* y, int rows) {
    const int row = threadIdx.x / 8, lane = threadIdx.x % 8;
    float sum = 0.0f;
    if (row < rows)
        for (int i = offsets[row] + lane; i < offsets[row + 1]; i += 8) sum += values[i] * x[columns[i]];
    sum += __shfl_xor_sync(0xffffffff, sum, 4, 8);
    sum += __shfl_xor_sync(0xffffffff, sum, 2, 8);
    sum += __shfl_xor_sync(0xffffffff, sum, 1, 8);
    if (row < rows && lane == 0) y[row] = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    spmv<<<1, 64>>>((const int*)in[0], (const int*)in[1], (const float*)in[2], (const float*)in[3], (float*)out[0], (int)size[0]);
}

/*
summary: Transpose through a padded tile in shared memory, ragged edges
inputs:
  x: normal(70, 45)
outputs:
  y: new(45, 70)
sizes: [70, 45]
expected:
  y: x.t().contiguous()
*/
#include <cuda_runtime.h>
const int TILE = 32;
const int ROWS = 8;

__global__ void transpose(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[TILE][TILE + 1];
    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS)
        if (column < columns && row + j < rows) tile[threadIdx.y + j][threadIdx.x] = x[(row + j) * columns + column];
    __syncthreads();
    column = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS)
        if (column < rows && row + j < columns) y[(row + j) * rows + column] = tile[threadIdx.x][threadIdx.y + j];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int rows = (int)size[0], columns = (int)size[1];
    const dim3 grid((columns + TILE - 1) / TILE, (rows + TILE - 1) / TILE), block(TILE, ROWS);
    transpose<<<grid, block>>>((const float*)in[0], (float*)out[0], rows, columns);
}

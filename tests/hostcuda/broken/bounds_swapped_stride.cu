/*
summary: Rows and columns exchanged in the index of a matrix that isn't square
twin: transpose_tiled
inputs:
  x: normal(20, 50)
outputs:
  y: new(20, 50)
sizes: [20, 50]
defect:
  status: memory_error
  kernel: copy
  tool: memcheck
*/
#include <cuda_runtime.h>

__global__ void copy(const float* x, float* y, int rows, int columns) {
    const int c = threadIdx.x, r = blockIdx.x;
    if (r < columns && c < rows) y[r * columns + c] = x[r * columns + c];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    copy<<<(int)size[1], (int)size[0]>>>((const float*)in[0], (float*)out[0], (int)size[0], (int)size[1]);
}

/*
summary: No guard for the threads of the last block
twin: reduce_shuffle
inputs:
  x: normal(1000)
outputs:
  y: new(1000)
sizes: [1000]
defect:
  status: memory_error
  kernel: square
  tool: memcheck
*/
#include <cuda_runtime.h>

__global__ void square(const float* x, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float v = x[i];  // defect
    y[i] = v * v;          // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    square<<<4, 256>>>((const float*)in[0], (float*)out[0]);
}

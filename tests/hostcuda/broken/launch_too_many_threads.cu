/*
summary: 2,048 threads a block
twin: vector_add
inputs:
  x: normal(2048)
outputs:
  y: new(2048)
sizes: [2048]
defect:
  status: launch_error
  kernel: copy
  tool: null
*/
#include <cuda_runtime.h>

__global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    copy<<<1, (unsigned)size[0]>>>((const float*)in[0], (float*)out[0]);  // defect
}

/*
summary: A grid that is no multiple of its clusters
twin: cluster_places
inputs:
  x: normal(512)
outputs:
  y: new(512)
sizes: [512]
arch: 90
defect:
  status: launch_error
  kernel: copy
  tool: null
*/
#include <cuda_runtime.h>

__global__ void __cluster_dims__(4, 1, 1) copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    copy<<<6, 128>>>((const float*)in[0], (float*)out[0]);  // defect
}

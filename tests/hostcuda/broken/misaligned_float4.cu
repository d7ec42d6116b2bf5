/*
summary: float4 loads from an address that is a multiple of four bytes only
twin: vector_float4
inputs:
  x: normal(129)
outputs:
  y: new(128)
sizes: [128]
defect:
  status: memory_error
  kernel: copy
  tool: memcheck
*/
#include <cuda_runtime.h>

__global__ void copy(const float* x, float* y) {
    const float4 v = reinterpret_cast<const float4*>(x + 1)[threadIdx.x];  // defect
    reinterpret_cast<float4*>(y)[threadIdx.x] = v;
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    copy<<<1, 32>>>((const float*)in[0], (float*)out[0]);
}

/*
summary: A kernel is given the address of memory of the host (a GPU with heterogeneous memory management lets this pass)
twin: constant_polynomial
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
defect:
  status: memory_error
  kernel: scale
  tool: memcheck
*/
#include <cuda_runtime.h>
#include <vector>

__global__ void scale(const float* x, float* y, const float* factor) { y[threadIdx.x] = x[threadIdx.x] * *factor; }  // defect

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    std::vector<float> factor(16, 2.0f);
    scale<<<1, 64>>>((const float*)in[0], (float*)out[0], factor.data());
    cudaDeviceSynchronize();
}

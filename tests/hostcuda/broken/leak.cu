/*
summary: A work buffer that is never given back
twin: runtime_copies
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
defect:
  status: leak
  kernel: null
  tool: memcheck
*/
#include <cuda_runtime.h>

__global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    float* work = nullptr;
    const size_t bytes = size[0] * sizeof(float);
    cudaMalloc(&work, bytes);  // defect
    copy<<<1, (int)size[0]>>>((const float*)in[0], work);
    cudaMemcpy(out[0], work, bytes, cudaMemcpyDeviceToDevice);
}

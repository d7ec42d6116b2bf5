/*
summary: A kernel reads a buffer that has been given back
twin: streams_events
inputs:
  x: normal(256)
outputs:
  y: new(256)
sizes: [256]
defect:
  status: memory_error
  kernel: copy
  tool: memcheck
*/
#include <cuda_runtime.h>

__global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }  // defect

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    float* buffer = nullptr;
    const size_t bytes = size[0] * sizeof(float);
    cudaMalloc(&buffer, bytes);
    cudaMemcpy(buffer, in[0], bytes, cudaMemcpyDeviceToDevice);
    cudaFree(buffer);
    copy<<<1, (int)size[0]>>>(buffer, (float*)out[0]);
}

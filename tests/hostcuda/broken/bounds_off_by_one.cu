/*
summary: <= for < in the guard, one element past the end of three arrays
twin: vector_add
inputs:
  a: normal(1000)
  b: normal(1000)
outputs:
  c: new(1000)
sizes: [1000]
defect:
  status: memory_error
  kernel: vector_add
  tool: memcheck
*/
#include <cuda_runtime.h>

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) c[i] = a[i] + b[i];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    vector_add<<<8, 128>>>((const float*)in[0], (const float*)in[1], (float*)out[0], (int)size[0]);
}

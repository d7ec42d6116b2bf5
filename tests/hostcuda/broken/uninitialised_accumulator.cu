/*
summary: Results are added to an output that nobody set to zero
twin: matmul_naive
inputs:
  x: normal(200)
outputs:
  y: new(200)
sizes: [200]
defect:
  status: uninitialised_read
  kernel: accumulate
  tool: initcheck
*/
#include <cuda_runtime.h>

__global__ void accumulate(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    accumulate<<<2, 128>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

/*
summary: More than 48 KiB of dynamic shared memory without cudaFuncSetAttribute
twin: dynamic_shared_large
inputs:
  x: normal(16000)
outputs:
  y: new(16000)
sizes: [16000]
defect:
  status: launch_error
  kernel: reverse
  tool: null
*/
#include <cuda_runtime.h>

__global__ void reverse(const float* x, float* y, int n) {
    extern __shared__ float s[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    reverse<<<1, 256, n * sizeof(float)>>>((const float*)in[0], (float*)out[0], n);  // defect
}

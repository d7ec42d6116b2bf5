/*
summary: The launch gives half the dynamic shared memory that the kernel uses
twin: matmul_double_buffer
inputs:
  x: normal(256)
outputs:
  y: new(256)
sizes: [256]
defect:
  status: memory_error
  kernel: reverse
  tool: memcheck
*/
#include <cuda_runtime.h>

__global__ void reverse(const float* x, float* y, int n) {
    extern __shared__ float s[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];          // defect
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    reverse<<<1, 128, n * sizeof(float) / 2>>>((const float*)in[0], (float*)out[0], n);
}

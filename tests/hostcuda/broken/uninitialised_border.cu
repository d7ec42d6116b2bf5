/*
summary: A scratch buffer whose border is never written is read by the next kernel
twin: stencil_heat
inputs:
  x: uniform(16, 16)
outputs:
  scratch: new(16, 16)
  y: new(16, 16)
sizes: [16]
defect:
  status: uninitialised_read
  kernel: blur
  tool: initcheck
*/
#include <cuda_runtime.h>

__global__ void inner(const float* x, float* scratch, int n) {
    const int r = threadIdx.y, c = threadIdx.x;
    if (r > 0 && r < n - 1 && c > 0 && c < n - 1) scratch[r * n + c] = 2.0f * x[r * n + c];
}
__global__ void blur(const float* scratch, float* y, int n) {
    const int r = threadIdx.y, c = threadIdx.x;
    const int left = c > 0 ? c - 1 : 0, right = c < n - 1 ? c + 1 : n - 1;
    y[r * n + c] = scratch[r * n + left] + scratch[r * n + right];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    inner<<<1, dim3(n, n)>>>((const float*)in[0], (float*)out[0], n);
    blur<<<1, dim3(n, n)>>>((const float*)out[0], (float*)out[1], n);
}

/*
summary: "Threads beyond the data return before the barriers of the others (allowed since Volta: exited threads don't count)"
inputs:
  x: normal(100)
outputs:
  y: new(100)
sizes: [100]
arch: 70
expected:
  y: x.flip(0)
*/
#include <cuda_runtime.h>

__global__ void reverse(const float* x, float* y, int n) {
    __shared__ float s[128];
    const int t = threadIdx.x;
    if (t >= n) return;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[n - 1 - t];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    reverse<<<1, 128>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

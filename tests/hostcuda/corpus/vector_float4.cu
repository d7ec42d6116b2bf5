/*
summary: float4 loads and stores with a scalar tail
inputs:
  x: normal(1027)
outputs:
  y: new(1027)
sizes: [1027]
expected:
  y: x * 2 + 1
tolerance: 1.0e-6
*/
#include <cuda_runtime.h>

__global__ void scale_shift(const float* x, float* y, int n) {
    const int quads = n / 4;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < quads) {
        float4 v = reinterpret_cast<const float4*>(x)[i];
        v.x = v.x * 2.f + 1.f;
        v.y = v.y * 2.f + 1.f;
        v.z = v.z * 2.f + 1.f;
        v.w = v.w * 2.f + 1.f;
        reinterpret_cast<float4*>(y)[i] = v;
    }
    const int tail = 4 * quads + i;
    if (i < 4 && tail < n) y[tail] = x[tail] * 2.f + 1.f;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    scale_shift<<<(n / 4 + 127) / 128, 128>>>((const float*)in[0], (float*)out[0], n);
}

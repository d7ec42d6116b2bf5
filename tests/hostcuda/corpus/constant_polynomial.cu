/*
summary: Constant memory with an initialiser, and a struct copied to it
inputs:
  x: normal(200)
outputs:
  y: new(200)
sizes: [200]
expected:
  y: (1 + 2 * x.double() - 0.5 * x.double() ** 2 + 0.25 * x.double() ** 3) * 3 - 1
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

struct Affine {
    float scale, shift;
};
__constant__ float coefficients[4] = {1.0f, 2.0f, -0.5f, 0.25f};
__constant__ Affine affine;

__global__ void polynomial(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float value = 0.0f;
#pragma unroll
    for (int c = 3; c >= 0; --c) value = fmaf(value, x[i], coefficients[c]);
    y[i] = value * affine.scale + affine.shift;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const Affine host = {3.0f, -1.0f};
    cudaMemcpyToSymbol(affine, &host, sizeof(Affine));
    polynomial<<<4, 64>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

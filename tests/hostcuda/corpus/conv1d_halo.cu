/*
summary: A tile with its halo in shared memory
inputs:
  x: normal(300)
  w: normal(7)
outputs:
  y: new(300)
sizes: [300]
expected:
  y: F.conv1d(x.double()[None, None], w.double()[None, None], padding=3)[0, 0]
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>
#define R 3
#define B 64

__global__ void conv(const float* x, const float* w, float* y, int n) {
    __shared__ float tile[B + 2 * R];
    const int i = blockIdx.x * B + threadIdx.x, s = threadIdx.x + R;
    tile[s] = i < n ? x[i] : 0.0f;
    if (threadIdx.x < R) {
        tile[s - R] = i >= R ? x[i - R] : 0.0f;
        tile[s + B] = i + B < n ? x[i + B] : 0.0f;
    }
    __syncthreads();
    if (i < n) {
        float sum = 0.0f;
        for (int k = -R; k <= R; ++k) sum += tile[s + k] * w[k + R];
        y[i] = sum;
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    conv<<<(n + B - 1) / B, B>>>((const float*)in[0], (const float*)in[1], (float*)out[0], n);
}

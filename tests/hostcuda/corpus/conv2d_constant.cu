/*
summary: Convolution with its weights in constant memory (cudaMemcpyToSymbol)
inputs:
  x: normal(12, 14)
  w: normal(3, 3)
outputs:
  y: new(10, 12)
sizes: [12, 14]
expected:
  y: F.conv2d(x.double()[None, None], w.double()[None, None])[0, 0]
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

__constant__ float weights[9];

__global__ void conv(const float* x, float* y, int height, int width) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= height - 2 || c >= width - 2) return;
    float sum = 0.0f;
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) sum += weights[i * 3 + j] * x[(r + i) * width + c + j];
    y[r * (width - 2) + c] = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    cudaMemcpyToSymbol(weights, in[1], sizeof(weights), 0, cudaMemcpyDeviceToDevice);
    conv<<<dim3(2, 2), dim3(8, 8)>>>((const float*)in[0], (float*)out[0], (int)size[0], (int)size[1]);
}

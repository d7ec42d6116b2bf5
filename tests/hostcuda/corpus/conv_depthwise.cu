/*
summary: Template on kernel size and stride, index arithmetic on NCHW
inputs:
  x: normal(2, 3, 9, 11)
  w: normal(3, 1, 3, 3)
outputs:
  y: new(2, 3, 5, 6)
sizes: [2, 3, 9, 11]
expected:
  y: F.conv2d(x.double(), w.double(), stride=2, padding=1, groups=3)
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

template <int K, int S, int P, typename T>
__global__ void depthwise(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y, int batch, int channels, int height,
                          int width, int out_height, int out_width) {
    const int total = batch * channels * out_height * out_width;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
        const int ox = i % out_width, oy = i / out_width % out_height, c = i / (out_width * out_height) % channels;
        const int b = i / (out_width * out_height * channels);
        T sum = 0;
#pragma unroll
        for (int ky = 0; ky < K; ++ky)
#pragma unroll
            for (int kx = 0; kx < K; ++kx) {
                const int iy = oy * S - P + ky, ix = ox * S - P + kx;
                if (iy >= 0 && iy < height && ix >= 0 && ix < width)
                    sum += x[((b * channels + c) * height + iy) * width + ix] * w[(c * K + ky) * K + kx];
            }
        y[i] = sum;
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int height = (int)size[2], width = (int)size[3];
    depthwise<3, 2, 1, float><<<2, 96>>>((const float*)in[0], (const float*)in[1], (float*)out[0], (int)size[0], (int)size[1],
                                         height, width, (height - 1) / 2 + 1, (width - 1) / 2 + 1);
}

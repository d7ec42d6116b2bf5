/*
summary: Radix-2 FFT of 64 points in shared memory, float2, sincospif, bit reversal with __brev
inputs:
  x: normal(64, 2)
outputs:
  y: new(64, 2)
sizes: [64]
expected:
  y: torch.view_as_real(torch.fft.fft(torch.view_as_complex(x.double())))
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

__device__ float2 operator*(float2 a, float2 b) { return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
__device__ float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ float2 operator-(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }

__global__ void fft(const float2* x, float2* y) {
    __shared__ float2 s[64];
    const int t = threadIdx.x;
    s[__brev((unsigned)t) >> 26] = x[t];
    s[__brev((unsigned)(t + 32)) >> 26] = x[t + 32];
    for (int half = 1; half < 64; half *= 2) {
        __syncthreads();
        const int j = t % half, i = (t - j) * 2 + j;
        float sine, cosine;
        sincospif(-(float)j / half, &sine, &cosine);
        const float2 a = s[i], b = s[i + half] * make_float2(cosine, sine);
        s[i] = a + b;
        s[i + half] = a - b;
    }
    __syncthreads();
    y[t] = s[t];
    y[t + 32] = s[t + 32];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    fft<<<1, 32>>>((const float2*)in[0], (float2*)out[0]);
}

/*
summary: Template on the block size, last warp unrolled with __syncwarp between the steps
inputs:
  x: normal(4096)
outputs:
  sums: new(8)
sizes: [4096]
expected:
  sums: x.double().view(8, 512).sum(1)
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

template <unsigned Block>
__device__ void last_warp(volatile float* s, unsigned t) {
    float v = s[t];
    if (Block >= 64) { v += s[t + 32]; __syncwarp(); s[t] = v; __syncwarp(); }
    if (Block >= 32) { v += s[t + 16]; __syncwarp(); s[t] = v; __syncwarp(); }
    if (Block >= 16) { v += s[t + 8]; __syncwarp(); s[t] = v; __syncwarp(); }
    if (Block >= 8) { v += s[t + 4]; __syncwarp(); s[t] = v; __syncwarp(); }
    if (Block >= 4) { v += s[t + 2]; __syncwarp(); s[t] = v; __syncwarp(); }
    if (Block >= 2) { v += s[t + 1]; __syncwarp(); s[t] = v; __syncwarp(); }
}

template <unsigned Block>
__global__ void reduce(const float* x, float* sums) {
    __shared__ float s[Block + 32];
    const unsigned t = threadIdx.x;
    const unsigned i = blockIdx.x * (Block * 2) + t;
    s[t] = x[i] + x[i + Block];
    if (t < 32) s[Block + t] = 0.0f;
    __syncthreads();
    if (Block >= 512) { if (t < 256) s[t] += s[t + 256]; __syncthreads(); }
    if (Block >= 256) { if (t < 128) s[t] += s[t + 128]; __syncthreads(); }
    if (Block >= 128) { if (t < 64) s[t] += s[t + 64]; __syncthreads(); }
    if (t < 32) last_warp<Block>(s, t);
    if (t == 0) sums[blockIdx.x] = s[0];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    reduce<256u><<<8, 256>>>((const float*)in[0], (float*)out[0]);
}

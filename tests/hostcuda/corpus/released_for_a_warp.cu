/*
summary: A lane tells other blocks of what its warp has written, and several lanes of one block wait for such words
inputs:
  x: normal(64, 32)
outputs:
  y: zeros(1)
  tmp: new(64, 32)
  flags: zeros(64, dtype=torch.int32)
sizes: [64]
expected:
  y: (x * 2).sum().view(1)
tolerance: 1.0e-4
*/
#include <cuda_runtime.h>
__global__ void k(const float* x, float* tmp, int* flags, float* y) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, w = blockIdx.x * 4 + warp;
    tmp[w * 32 + lane] = x[w * 32 + lane] * 2;
    __syncwarp();
    if (lane == 0) { __threadfence(); atomicExch(&flags[w], 1); }
    if (blockIdx.x == 15) {
        float s = 0;
        for (int o = warp; o < 64; o += 4) {
            if (lane == 0) { while (atomicAdd(&flags[o], 0) == 0) { } __threadfence(); }
            __syncwarp();
            s += __ldcg(&tmp[o * 32 + lane]);
        }
        for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
        if (lane == 0) atomicAdd(y, s);
    }
}
extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    k<<<16, 128>>>((const float*)in[0], (float*)out[1], (int*)out[2], (float*)out[0]);
}

/*
summary: Shuffles inside warps, shared memory between them, one atomic a block
inputs:
  x: normal(5000)
outputs:
  total: zeros(1)
sizes: [5000]
expected:
  total: x.double().sum().view(1)
tolerance: 1.0e-4
*/
#include <cuda_runtime.h>

__inline__ __device__ float warp_sum(float v) {
#pragma unroll
    for (int offset = warpSize / 2; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffff, v, offset);
    return v;
}

__global__ void reduce(const float* x, float* total, int n) {
    __shared__ float warps[32];
    float v = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v += x[i];
    v = warp_sum(v);
    const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    if (lane == 0) warps[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / warpSize ? warps[lane] : 0.0f;
    if (warp == 0) {
        v = warp_sum(v);
        if (lane == 0) atomicAdd(total, v);
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    reduce<<<5, 192>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

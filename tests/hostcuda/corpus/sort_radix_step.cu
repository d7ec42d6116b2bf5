/*
summary: Radix sort by one bit a pass, ranks by ballots
inputs:
  x: integers(0, 256, 128)
outputs:
  y: new(128, dtype=torch.int32)
sizes: [128]
expected:
  y: x.sort().values
*/
#include <cuda_runtime.h>

__global__ void radix_sort(const int* x, int* y, int bits) {
    __shared__ int keys[128];
    __shared__ int zeros[4];
    const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    int key = x[t];
    for (int bit = 0; bit < bits; ++bit) {
        const bool one = (key >> bit) & 1;
        const unsigned zero_lanes = __ballot_sync(0xffffffffu, !one);
        if (lane == 0) zeros[warp] = __popc(zero_lanes);
        __syncthreads();
        int zeros_before = __popc(zero_lanes & ((1u << lane) - 1u)), all_zeros = 0;
        for (int w = 0; w < 4; ++w) {
            if (w < warp) zeros_before += zeros[w];
            all_zeros += zeros[w];
        }
        const int place = one ? all_zeros + t - zeros_before : zeros_before;
        keys[place] = key;
        __syncthreads();
        key = keys[t];
        __syncthreads();
    }
    y[t] = key;
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    radix_sort<<<1, 128>>>((const int*)in[0], (int*)out[0], 8);
}

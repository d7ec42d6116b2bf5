/*
summary: Only half of the shared array is written before all of it is summed
twin: reduce_tree
inputs:
  x: normal(128)
outputs:
  sums: new(1)
sizes: [128]
defect:
  status: uninitialised_read
  kernel: block_sum
  tool: null
*/
#include <cuda_runtime.h>

__global__ void block_sum(const float* x, float* sums, int n) {
    __shared__ float partial[256];
    const int t = threadIdx.x;
    if (t < n) partial[t] = x[t];
    __syncthreads();
    for (int step = 128; step > 0; step >>= 1) {
        if (t < step) partial[t] += partial[t + step];  // defect
        __syncthreads();
    }
    if (t == 0) sums[0] = partial[0];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    block_sum<<<1, 256>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

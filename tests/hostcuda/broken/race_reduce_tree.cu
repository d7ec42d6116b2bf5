/*
summary: Tree reduction without a barrier between its levels
twin: reduce_tree
inputs:
  x: normal(256)
outputs:
  sums: new(1)
sizes: [256]
defect:
  status: data_race
  kernel: block_sum
  tool: racecheck
*/
#include <cuda_runtime.h>

__global__ void block_sum(const float* x, float* sums) {
    __shared__ float partial[256];
    const int t = threadIdx.x;
    partial[t] = x[t];
    __syncthreads();
    for (int step = 128; step > 0; step >>= 1) {
        if (t < step) partial[t] += partial[t + step];  // defect
    }
    __syncthreads();
    if (t == 0) sums[0] = partial[0];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    block_sum<<<1, 256>>>((const float*)in[0], (float*)out[0]);
}

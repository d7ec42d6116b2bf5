/*
summary: A counter in shared memory is read without a barrier while other warps still add to it
twin: counting_barriers
inputs:
  x: integers(0, 2, 256)
outputs:
  y: new(256, dtype=torch.int32)
sizes: [256]
defect:
  status: data_race
  kernel: count
  tool: racecheck
*/
#include <cuda_runtime.h>

__global__ void count(const int* x, int* y) {
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    if (x[threadIdx.x]) atomicAdd(&total, 1);  // defect
    y[threadIdx.x] = total;                    // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    count<<<1, 256>>>((const int*)in[0], (int*)out[0]);
}

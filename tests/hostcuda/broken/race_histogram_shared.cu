/*
summary: Histogram in shared memory without atomics
twin: histogram_shared
inputs:
  x: integers(0, 8, 512)
outputs:
  bins: zeros(8, dtype=torch.int32)
sizes: [512]
defect:
  status: data_race
  kernel: histogram
  tool: racecheck
*/
#include <cuda_runtime.h>

__global__ void histogram(const int* x, int* bins, int n) {
    __shared__ int local[8];
    if (threadIdx.x < 8) local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) local[x[i]]++;  // defect
    __syncthreads();
    if (threadIdx.x < 8) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    histogram<<<1, 128>>>((const int*)in[0], (int*)out[0], (int)size[0]);
}

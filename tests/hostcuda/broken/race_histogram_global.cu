/*
summary: Histogram in global memory without atomics, several blocks
twin: histogram_shared
inputs:
  x: integers(0, 8, 512)
outputs:
  bins: zeros(8, dtype=torch.int32)
sizes: [512]
defect:
  status: data_race
  kernel: histogram
  tool: null
*/
#include <cuda_runtime.h>

__global__ void histogram(const int* x, int* bins) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    bins[x[i]] += 1;  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    histogram<<<4, 128>>>((const int*)in[0], (int*)out[0]);
}

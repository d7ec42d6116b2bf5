/*
summary: In-place smoothing reads a neighbour that another block writes
twin: conv1d_halo
inputs:
  seed: normal(256)
outputs:
  x: uniform(256)
sizes: [256]
defect:
  status: data_race
  kernel: smooth
  tool: null
*/
#include <cuda_runtime.h>

__global__ void smooth(float* x, int n) {
    __shared__ float s[66];
    const int i = blockIdx.x * 64 + threadIdx.x;
    s[threadIdx.x + 1] = x[i];                                                // defect
    if (threadIdx.x == 0) s[0] = i > 0 ? x[i - 1] : 0.0f;                     // defect
    if (threadIdx.x == 63) s[65] = i + 1 < n ? x[i + 1] : 0.0f;               // defect
    __syncthreads();
    x[i] = (s[threadIdx.x] + s[threadIdx.x + 1] + s[threadIdx.x + 2]) / 3.0f;  // defect
}

extern "C" void run(const void* const*, void* const* out, const long long* size) {
    smooth<<<4, 64>>>((float*)out[0], (int)size[0]);
}

/*
summary: Many threads store the same value to one flag (benign)
inputs:
  x: integers(0, 100, 400)
outputs:
  found: zeros(2, dtype=torch.int32)
sizes: [400]
expected:
  found: torch.stack([(x == 42).any(), (x == 1000).any()]).to(torch.int32)
*/
#include <cuda_runtime.h>

__global__ void search(const int* x, int* found, int n) {
    __shared__ int here[2];
    if (threadIdx.x < 2) here[threadIdx.x] = 0;
    __syncthreads();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] == 42) here[0] = 1;
    if (i < n && x[i] == 1000) here[1] = 1;
    __syncthreads();
    if (here[0]) found[0] = 1;
    if (here[1]) found[1] = 1;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    search<<<4, 128>>>((const int*)in[0], (int*)out[0], (int)size[0]);
}

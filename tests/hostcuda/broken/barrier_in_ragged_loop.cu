/*
summary: A barrier inside a loop whose trip count differs between the threads of a warp
twin: softmax_block
inputs:
  x: normal(100)
outputs:
  y: zeros(32)
sizes: [100]
defect:
  status: barrier_error
  kernel: sum
  tool: synccheck
*/
#include <cuda_runtime.h>

__global__ void sum(const float* x, float* y, int n) {
    __shared__ float s[32];
    const int t = threadIdx.x;
    s[t] = 0.0f;
    for (int i = t; i < n; i += blockDim.x) {
        s[t] += x[i];
        __syncthreads();  // defect
    }
    __syncthreads();  // defect
    y[t] = s[t];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    sum<<<1, 32>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

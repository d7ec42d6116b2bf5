/*
summary: The block that finishes last adds up the partial sums (fence and counter)
inputs:
  x: normal(4096)
outputs:
  partial: new(16)
  total: new(1)
  counter: zeros(1, dtype=torch.int32)
sizes: [4096]
expected:
  total: x.double().sum().view(1)
tolerance: 1.0e-4
*/
#include <cuda_runtime.h>

__global__ void reduce_once(const float* x, float* partial, float* total, unsigned* counter, int n) {
    __shared__ float shared[128];
    __shared__ bool last;
    const int t = threadIdx.x;
    float v = 0.0f;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) v += x[i];
    shared[t] = v;
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (t < step) shared[t] += shared[t + step];
        __syncthreads();
    }
    if (t == 0) {
        partial[blockIdx.x] = shared[0];
        __threadfence();
        const unsigned ticket = atomicInc(counter, gridDim.x);
        last = ticket == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        shared[t] = t < gridDim.x ? ((volatile float*)partial)[t] : 0.0f;
        __syncthreads();
        for (int step = 64; step > 0; step /= 2) {
            if (t < step) shared[t] += shared[t + step];
            __syncthreads();
        }
        if (t == 0) {
            *total = shared[0];
            *counter = 0;
        }
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    reduce_once<<<16, 128>>>((const float*)in[0], (float*)out[0], (float*)out[1], (unsigned*)out[2], (int)size[0]);
}

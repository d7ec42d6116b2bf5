/*
summary: Threads wait at another barrier than the one that their copies are bound to
twin: split_barriers
inputs:
  x: normal(128)
outputs:
  y: new(128)
sizes: [128]
defect:
  status: data_race
  kernel: mirrored
  tool: null
*/
#include <cuda/barrier>
#include <cuda_runtime.h>
#pragma nv_diag_suppress static_var_with_dynamic_init

__global__ void mirrored(const float* x, float* y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> full, other;
    __shared__ float held[128];
    if (threadIdx.x == 0) {
        init(&full, blockDim.x);
        init(&other, blockDim.x);
    }
    __syncthreads();
    cuda::memcpy_async(held + threadIdx.x, x + threadIdx.x, sizeof(float), full);  // defect
    other.arrive_and_wait();
    y[threadIdx.x] = held[127 - threadIdx.x];  // defect
    full.arrive_and_wait();
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    mirrored<<<1, 128>>>((const float*)in[0], (float*)out[0]);
}

/*
summary: What a thread writes after it arrives at a barrier is read by others that wait for that phase
twin: split_barriers
inputs:
  x: normal(128)
outputs:
  y: new(128)
sizes: [128]
defect:
  status: data_race
  kernel: late
  tool: racecheck
*/
#include <cuda/barrier>
#include <cuda_runtime.h>

#include <utility>
#pragma nv_diag_suppress static_var_with_dynamic_init

__global__ void late(const float* x, float* y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> all;
    __shared__ float held[128];
    if (threadIdx.x == 0) init(&all, blockDim.x);
    __syncthreads();
    auto token = all.arrive();
    held[threadIdx.x] = x[threadIdx.x];  // defect
    all.wait(std::move(token));
    y[threadIdx.x] = held[127 - threadIdx.x];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    late<<<1, 128>>>((const float*)in[0], (float*)out[0]);
}

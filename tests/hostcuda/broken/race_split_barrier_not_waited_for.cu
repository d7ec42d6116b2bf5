/*
summary: Threads arrive at a barrier and read what others wrote before they wait for it
twin: split_barriers
inputs:
  x: normal(256)
outputs:
  y: new(256)
sizes: [256]
defect:
  status: data_race
  kernel: turn
  tool: racecheck
*/
#include <cuda/barrier>
#include <cuda_runtime.h>

#include <utility>
#pragma nv_diag_suppress static_var_with_dynamic_init

using Barrier = cuda::barrier<cuda::thread_scope_block>;

__global__ void turn(const float* x, float* y) {
    __shared__ Barrier all;
    __shared__ float held[256];
    if (threadIdx.x == 0) init(&all, blockDim.x);
    __syncthreads();
    held[threadIdx.x] = x[threadIdx.x];  // defect
    Barrier::arrival_token token = all.arrive();
    const float early = held[255 - threadIdx.x];  // defect
    all.wait(std::move(token));
    y[threadIdx.x] = early;
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    turn<<<1, 256>>>((const float*)in[0], (float*)out[0]);
}

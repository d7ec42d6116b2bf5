/*
summary: A thread uses its own asynchronous copy after it arrived at the barrier that tells of it, and before it waits there
twin: split_barriers
inputs:
  x: normal(256)
outputs:
  y: new(256)
sizes: [256]
defect:
  status: data_race
  kernel: doubled
  tool: null
*/
#include <cuda/barrier>
#include <cuda_runtime.h>

#include <utility>
#pragma nv_diag_suppress static_var_with_dynamic_init

__global__ void doubled(const float* x, float* y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> all;
    __shared__ float held[256];
    if (threadIdx.x == 0) init(&all, blockDim.x);
    __syncthreads();
    cuda::memcpy_async(held + threadIdx.x, x + threadIdx.x, sizeof(float), all);  // defect
    auto token = all.arrive();
    y[threadIdx.x] = held[threadIdx.x] * 2.0f;  // defect
    all.wait(std::move(token));
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    doubled<<<1, 256>>>((const float*)in[0], (float*)out[0]);
}

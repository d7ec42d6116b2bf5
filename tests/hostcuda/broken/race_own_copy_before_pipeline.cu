/*
summary: A thread uses its own copy of a block's pipeline after the commit and before it waits
twin: shared_pipelines
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
defect:
  status: data_race
  kernel: doubled
  tool: null
*/
#include <cooperative_groups.h>
#include <cuda/pipeline>
#include <cuda_runtime.h>
#pragma nv_diag_suppress static_var_with_dynamic_init

__global__ void doubled(const float* x, float* y) {
    __shared__ float buffer[64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state;
    auto pipe = cuda::make_pipeline(cooperative_groups::this_thread_block(), &state);
    pipe.producer_acquire();
    cuda::memcpy_async(buffer + threadIdx.x, x + threadIdx.x, sizeof(float), pipe);  // defect
    pipe.producer_commit();
    y[threadIdx.x] = buffer[threadIdx.x] * 2.0f;  // defect
    pipe.consumer_wait();
    pipe.consumer_release();
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    doubled<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}

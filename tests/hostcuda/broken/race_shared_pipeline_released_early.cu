/*
summary: A stage of a block's pipeline is released before it is read, and filled again meanwhile
twin: shared_pipelines
inputs:
  x: normal(1024)
outputs:
  y: new(1)
sizes: [1024]
defect:
  status: data_race
  kernel: add
  tool: racecheck
*/
#include <cooperative_groups.h>
#include <cuda/pipeline>
#include <cuda_runtime.h>
#pragma nv_diag_suppress static_var_with_dynamic_init

namespace cg = cooperative_groups;
constexpr int threads = 64;

__global__ void add(const float* x, float* y) {
    __shared__ float buffer[threads], held[threads];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    float sum = 0.0f;
    for (int step = 0; step < 16; step++) {
        pipe.producer_acquire();
        cuda::memcpy_async(block, buffer, x + step * threads, sizeof(float) * threads, pipe);  // defect
        pipe.producer_commit();  // defect
        pipe.consumer_wait();
        pipe.consumer_release();
        sum += buffer[threads - 1 - threadIdx.x];  // defect
    }
    held[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < threads; i++) sum += held[i];
    *y = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    add<<<1, threads>>>((const float*)in[0], (float*)out[0]);
}

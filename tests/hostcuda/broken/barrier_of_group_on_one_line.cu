/*
summary: Threads of one block wait for their group in two places of one line
twin: cg_reduce
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
defect:
  status: barrier_error
  kernel: parted
  tool: null
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>

__global__ void parted(const float* x, float* y) {
    const auto block = cooperative_groups::this_thread_block();
    const int i = threadIdx.x;
    if (i < 32) block.sync(); else block.sync();  // defect
    y[i] = x[i];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    parted<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}

/*
summary: One warp waits for the cluster, and the others of its block for that warp
twin: cluster_softmax
inputs:
  x: normal(512)
outputs:
  y: new(512)
sizes: [512]
arch: 90
defect:
  status: barrier_error
  kernel: stuck
  tool: null
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2, 1, 1) stuck(const float* x, float* y) {
    cg::cluster_group cluster = cg::this_cluster();
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (threadIdx.x < 32) cluster.sync();  // defect
    __syncthreads();  // defect
    y[i] = x[i] + cluster.block_rank();
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    stuck<<<4, 128>>>((const float*)in[0], (float*)out[0]);
}

/*
summary: An index passes the end of an array in another block of the cluster
twin: cluster_softmax
inputs:
  x: normal(512)
outputs:
  y: new(512)
sizes: [512]
arch: 90
defect:
  status: memory_error
  kernel: reach
  tool: null
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2, 1, 1) reach(const float* x, float* y) {
    __shared__ float held[128];
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, i = blockIdx.x * 128 + t;
    held[t] = x[i];
    cluster.sync();
    const float* there = cluster.map_shared_rank(held, cluster.block_rank() ^ 1);
    y[i] = there[t + 1];  // defect
    cluster.sync();
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    reach<<<4, 128>>>((const float*)in[0], (float*)out[0]);
}

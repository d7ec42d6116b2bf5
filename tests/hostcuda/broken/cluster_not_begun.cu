/*
summary: A block of a cluster adds to the shared memory of another one before anything tells that this one has begun
twin: cluster_histogram
inputs:
  x: normal(512)
outputs:
  y: new(512)
sizes: [512]
arch: 90
defect:
  status: memory_error
  kernel: early
  tool: null
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2, 1, 1) early(const float* x, float* y) {
    __shared__ float held[128];
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, i = blockIdx.x * 128 + t;
    *cluster.map_shared_rank(&held[t], cluster.block_rank() ^ 1) = x[i];  // defect
    cluster.sync();
    y[i] = held[t];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    early<<<4, 128>>>((const float*)in[0], (float*)out[0]);
}

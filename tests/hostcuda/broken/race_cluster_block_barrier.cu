/*
summary: A block writes its shared memory and another reads it; only the barrier of each block lies between
twin: cluster_softmax
inputs:
  x: normal(512)
outputs:
  y: new(512)
sizes: [512]
arch: 90
defect:
  status: data_race
  kernel: swap
  tool: null
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2, 1, 1) swap(const float* x, float* y) {
    __shared__ float held[128];
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, i = blockIdx.x * 128 + t;
    held[t] = 0.0f;
    cluster.sync();
    held[t] = x[i];  // defect
    __syncthreads();
    y[i] = *cluster.map_shared_rank(&held[t], cluster.block_rank() ^ 1);  // defect
    cluster.sync();
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    swap<<<4, 128>>>((const float*)in[0], (float*)out[0]);
}

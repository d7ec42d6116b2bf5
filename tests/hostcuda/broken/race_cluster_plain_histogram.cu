/*
summary: Blocks of a cluster count in one of them without atomics
twin: cluster_histogram
inputs:
  x: normal(512)
outputs:
  y: new(512)
sizes: [512]
arch: 90
defect:
  status: data_race
  kernel: count
  tool: null
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;


__global__ void __cluster_dims__(2, 1, 1) count(const float* x, float* y) {
    extern __shared__ int bins[];
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x;
    bins[t] = 0;
    cluster.sync();
    int* home = cluster.map_shared_rank(bins, 0);
    home[t] += x[blockIdx.x * 128 + t] > 0.0f;  // defect
    cluster.sync();
    if (cluster.block_rank() == 0) y[blockIdx.x * 128 + t] = bins[t];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    count<<<4, 128, 128 * sizeof(int)>>>((const float*)in[0], (float*)out[0]);
}

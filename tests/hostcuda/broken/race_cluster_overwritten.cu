/*
summary: The next round overwrites what other blocks of the cluster are still reading, as the second barrier of the loop is missing
twin: cluster_softmax
inputs:
  x: normal(512)
outputs:
  y: new(512)
sizes: [512]
arch: 90
defect:
  status: data_race
  kernel: rounds
  tool: null
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void __cluster_dims__(4, 1, 1) rounds(const float* x, float* y) {
    __shared__ float mine;
    cg::cluster_group cluster = cg::this_cluster();
    float sum = 0.0f;
    for (int round = 0; round < 3; round++) {
        if (threadIdx.x == 0) mine = x[blockIdx.x + round];  // defect
        cluster.sync();
        for (unsigned rank = 0; rank < cluster.num_blocks(); rank++) sum += *cluster.map_shared_rank(&mine, rank);  // defect
    }
    y[blockIdx.x * 128 + threadIdx.x] = sum;
    cluster.sync();
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    rounds<<<4, 128>>>((const float*)in[0], (float*)out[0]);
}

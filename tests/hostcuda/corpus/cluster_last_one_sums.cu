/*
summary: The cluster that comes last adds what the blocks of all of them left in global memory, told by one thread a cluster; blocks where one warp waits for the others
inputs:
  x: normal(16, 64)
outputs:
  parts: new(16, 64)
  y: new(2, 64)
  swapped: new(16, 64)
  counter: zeros(1, dtype=torch.int32)
sizes: [8]
expected:
  y: x.double().sum(0).float().expand(2, 64)
  swapped: x.reshape(8, 2, 64).flip(1)
  counter: torch.zeros(1, dtype=torch.int32)
tolerance: 1.0e-5
arch: 90
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2, 1, 1) last_one(const float* x, float* parts, float* y, unsigned* counter, unsigned clusters) {
    __shared__ unsigned ticket;
    cg::cluster_group cluster = cg::this_cluster();
    parts[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    cluster.sync();
    if (cluster.thread_rank() == 0) {
        __threadfence();
        const unsigned before = atomicAdd(counter, 1);
        __threadfence();
        for (unsigned rank = 0; rank < cluster.num_blocks(); rank++) *cluster.map_shared_rank(&ticket, rank) = before;
    }
    cluster.sync();
    if (ticket == clusters - 1) {
        float sum = 0.0f;
        for (unsigned b = 0; b < gridDim.x; b++) sum += parts[b * 64 + threadIdx.x];
        y[cluster.block_rank() * 64 + threadIdx.x] = sum;
        if (cluster.thread_rank() == 0) *counter = 0;
    }
}

__global__ void __cluster_dims__(2, 1, 1) swap(const float* x, float* y) {
    __shared__ float held[64];
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, i = blockIdx.x * 64 + t;
    held[t] = x[i];
    cluster.barrier_arrive();
    if (t < 32) cluster.barrier_wait();
    __syncthreads();  // tells the others
    y[i] = *cluster.map_shared_rank(&held[t], cluster.block_rank() ^ 1);
    if (t >= 32) cluster.barrier_wait();
    cluster.sync();
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    last_one<<<2 * (int)size[0], 64>>>((const float*)in[0], (float*)out[0], (float*)out[1], (unsigned*)out[3], (unsigned)size[0]);
    swap<<<2 * (int)size[0], 64>>>((const float*)in[0], (float*)out[2]);
}

/*
summary: A block of a cluster waits for a flag in its shared memory that another one sets behind a fence; clusters of a cooperative grid
inputs:
  x: normal(8, 96)
outputs:
  y: new(8, 96)
  sums: new(4)
  z: new(8, 96)
sizes: [8]
expected:
  y: x.reshape(4, 2, 96).flip(1).reshape(8, 96) * 2
  z: x - x.double().mean().float()
tolerance: 1.0e-5
arch: 90
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2, 1, 1) flags(const float* x, float* y) {
    __shared__ float slot[96];
    __shared__ unsigned flag;
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, other = cluster.block_rank() ^ 1;
    if (t == 0) flag = 0;
    cluster.sync();
    *cluster.map_shared_rank(&slot[t], other) = x[blockIdx.x * 96 + t] * 2;
    __syncthreads();
    if (t == 0) {
        __threadfence();
        atomicExch(cluster.map_shared_rank(&flag, other), 1u);
        unsigned seen = 0;
        while (seen == 0) asm volatile("ld.acquire.cluster.shared::cta.u32 %0, [%1];" : "=r"(seen) : "r"((unsigned)__cvta_generic_to_shared(&flag)) : "memory");
    }
    __syncthreads();
    y[blockIdx.x * 96 + t] = slot[t];
}

__global__ void centre(const float* x, float* sums, float* z, int rows) {
    __shared__ float part;
    cg::cluster_group cluster = cg::this_cluster();
    const auto grid = cg::this_grid();
    const int t = threadIdx.x;
    if (t == 0) part = 0.0f;
    cluster.sync();
    if (t < 32) {
        float sum = 0.0f;
        for (int i = t; i < 96; i += 32) sum += x[blockIdx.x * 96 + i];
        atomicAdd(cluster.map_shared_rank(&part, 0), sum);
    }
    cluster.sync();
    if (t == 0 && cluster.block_rank() == 0) sums[grid.cluster_rank()] = part;
    grid.sync();
    float total = 0.0f;
    for (int c = 0; c < (int)grid.num_clusters(); c++) total += sums[c];
    if (t == 0) part = total;
    grid.sync();
    total = *cluster.map_shared_rank(&part, cluster.num_blocks() - 1 - cluster.block_rank());
    z[blockIdx.x * 96 + t] = x[blockIdx.x * 96 + t] - total / (rows * 96);
    cluster.sync();
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    flags<<<(int)size[0], 96>>>((const float*)in[0], (float*)out[0]);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((int)size[0]);
    config.blockDim = dim3(96);
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeCooperative;
    attributes[0].val.cooperative = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = 2;
    attributes[1].val.clusterDim.y = 1;
    attributes[1].val.clusterDim.z = 1;
    config.attrs = attributes;
    config.numAttrs = 2;
    cudaLaunchKernelEx(&config, centre, (const float*)in[0], (float*)out[1], (float*)out[2], (int)size[0]);
}

/*
summary: A histogram whose bins lie in the shared memory of all blocks of a cluster, its size and dynamic memory given at the launch
inputs:
  x: integers(0, 1024, 6000)
outputs:
  counts: zeros(1024, dtype=torch.int32)
  clusters: new(3, dtype=torch.int32)
sizes: [6000, 1024]
expected:
  counts: torch.bincount(x, minlength=1024).to(torch.int32)
  clusters: torch.tensor([1, 1, 0], dtype=torch.int32)
arch: 90
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void histogram(const int* x, int* counts, int n, int bins) {
    extern __shared__ int part[];
    cg::cluster_group cluster = cg::this_cluster();
    const int share = bins / cluster.num_blocks();
    for (int i = threadIdx.x; i < share; i += blockDim.x) part[i] = 0;
    cluster.sync();
    for (int i = cg::this_grid().thread_rank(); i < n; i += gridDim.x * blockDim.x) {
        int* home = cluster.map_shared_rank(part, x[i] / share);
        atomicAdd(home + x[i] % share, 1);
    }
    cluster.sync();
    for (int i = threadIdx.x; i < share; i += blockDim.x) atomicAdd(&counts[cluster.block_rank() * share + i], part[i]);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0], bins = (int)size[1], blocks = 4;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(3 * blocks);
    config.blockDim = dim3(96);
    config.dynamicSmemBytes = bins / blocks * sizeof(int);
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = blocks;
    attribute[0].val.clusterDim.y = 1;
    attribute[0].val.clusterDim.z = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    int possible = 0, active = 0;
    cudaOccupancyMaxPotentialClusterSize(&possible, histogram, &config);
    cudaOccupancyMaxActiveClusters(&active, histogram, &config);
    cudaLaunchKernelEx(&config, histogram, (const int*)in[0], (int*)out[0], n, bins);
    const int facts[3] = {possible >= blocks, active >= 1, (int)cudaGetLastError()};
    cudaMemcpy(out[1], facts, sizeof(facts), cudaMemcpyHostToDevice);
}

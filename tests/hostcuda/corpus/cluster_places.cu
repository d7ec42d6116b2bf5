/*
summary: Where a block is in its cluster and the cluster in the grid, in three dimensions, by cooperative groups and by special registers; what launches refuse
inputs:
  x: zeros(1)
outputs:
  places: new(48, 18, dtype=torch.int32)
  errors: new(6, dtype=torch.int32)
sizes: [48]
helpers: |
  def place(b):
      at, grid, size = (b % 4, b // 4 % 6, b // 24), (4, 6, 2), (2, 3, 1)
      inner = tuple(a % s for a, s in zip(at, size))
      outer = tuple(a // s for a, s in zip(at, size))
      count = tuple(g // s for g, s in zip(grid, size))
      rank = inner[0] + 2 * inner[1]
      return [*inner, *outer, *count, *size, rank, 6, outer[0] + 2 * (outer[1] + 2 * outer[2]), 8, rank * 8 + 5, 1]
expected:
  places: torch.tensor([place(b) for b in range(48)], dtype=torch.int32)
  errors: torch.tensor([1, 1, 1, 0, 1, 0], dtype=torch.int32)
arch: 90
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__device__ int cluster_ctaid_y() {
    unsigned value;
    asm volatile("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(value));
    return (int)value;
}
__device__ int cluster_ctarank() {
    unsigned value;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(value));
    return (int)value;
}
__device__ int cluster_nctaid_y() {
    unsigned value;
    asm volatile("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(value));
    return (int)value;
}
__device__ int cluster_nctarank() {
    unsigned value;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(value));
    return (int)value;
}
__device__ int clusterid_y() {
    unsigned value;
    asm volatile("mov.u32 %0, %%clusterid.y;" : "=r"(value));
    return (int)value;
}
__device__ int nclusterid_x() {
    unsigned value;
    asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(value));
    return (int)value;
}
__device__ int nclusterid_z() {
    unsigned value;
    asm volatile("mov.u32 %0, %%nclusterid.z;" : "=r"(value));
    return (int)value;
}

__global__ void places(int* out) {
    if (cg::this_thread_block().thread_rank() != 5) return;
    const auto cluster = cg::this_cluster();
    const auto grid = cg::this_grid();
    out += 18 * grid.block_rank();
    const dim3 inner = cluster.block_index(), outer = grid.cluster_index(), size = cluster.dim_blocks();
    const int values[18] = {
        (int)inner.x, cluster_ctaid_y(), (int)inner.z, (int)outer.x, clusterid_y(), (int)outer.z,
        nclusterid_x(), (int)grid.dim_clusters().y, nclusterid_z(), (int)size.x, cluster_nctaid_y(), (int)size.z,
        cluster_ctarank(), cluster_nctarank(), (int)grid.cluster_rank(), (int)grid.num_clusters(), (int)cluster.thread_rank(),
        (int)(cluster.block_rank() == cluster_ctarank() && cluster.num_threads() == 48 && cluster.dim_threads().y == 6 && cluster.size() == 48 &&
              cluster.thread_index().x == inner.x * 4 + threadIdx.x)};
    for (int i = 0; i < 18; i++) out[i] = values[i];
}

__global__ void __cluster_dims__(2) pairs(int* out) {}
__global__ void nothing(int* out) {}

template <class Kernel> int launched(Kernel kernel, int blocks, int x, int* out) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(32);
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = x;
    attribute[0].val.clusterDim.y = 1;
    attribute[0].val.clusterDim.z = 1;
    config.attrs = attribute;
    config.numAttrs = x > 0 ? 1 : 0;
    const cudaError_t told = cudaLaunchKernelEx(&config, kernel, out);
    return cudaGetLastError() == told ? told != cudaSuccess : -1;
}

extern "C" void run(const void* const*, void* const* out, const long long*) {
    int* result = (int*)out[0];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(4, 6, 2);
    config.blockDim = dim3(4, 2, 1);
    cudaLaunchAttribute attribute[2];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    attribute[1].id = cudaLaunchAttributeClusterDimension;
    attribute[1].val.clusterDim.x = 2;
    attribute[1].val.clusterDim.y = 3;
    attribute[1].val.clusterDim.z = 1;
    config.attrs = attribute;
    config.numAttrs = 2;
    void* arguments[] = {&result};
    cudaLaunchKernelExC(&config, (const void*)places, arguments);
    int errors[6];
    errors[0] = launched(nothing, 7, 2, result);   // no multiple
    errors[1] = launched(nothing, 16, 16, result);  // more than all devices have
    errors[2] = launched(pairs, 8, 4, result);      // not the kernel's own size
    errors[3] = launched(pairs, 8, 0, result);      // the kernel's own
    errors[4] = launched(pairs, 7, 0, result);      // which does not divide the grid
    cudaFuncSetAttribute(nothing, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    errors[5] = launched(nothing, 16, 16, result);
    cudaFuncSetAttribute(nothing, cudaFuncAttributeNonPortableClusterSizeAllowed, 0);
    cudaMemcpy(out[1], errors, sizeof(errors), cudaMemcpyHostToDevice);
}

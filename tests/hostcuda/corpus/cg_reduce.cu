/*
summary: Cooperative groups, thread block and tiles of 32, shuffles through the tile
inputs:
  x: normal(3000)
outputs:
  total: zeros(1)
sizes: [3000]
expected:
  total: x.double().sum().view(1)
tolerance: 1.0e-4
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__device__ float tile_sum(cg::thread_block_tile<32> tile, float v) {
    for (int i = tile.size() / 2; i > 0; i /= 2) v += tile.shfl_down(v, i);
    return v;
}

__global__ void reduce(const float* x, float* total, int n) {
    extern __shared__ float warps[];
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
    float v = 0.0f;
    for (int i = blockIdx.x * block.size() + block.thread_rank(); i < n; i += gridDim.x * block.size()) v += x[i];
    v = tile_sum(tile, v);
    if (tile.thread_rank() == 0) warps[tile.meta_group_rank()] = v;
    block.sync();
    if (tile.meta_group_rank() == 0) {
        v = tile.thread_rank() < tile.meta_group_size() ? warps[tile.thread_rank()] : 0.0f;
        v = tile_sum(tile, v);
        if (tile.thread_rank() == 0) atomicAdd(total, v);
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    reduce<<<3, 256, 8 * sizeof(float)>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

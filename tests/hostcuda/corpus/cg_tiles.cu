/*
summary: Tiles of 8 lanes with shfl_xor, any, ballot; nested tiles; cg::reduce
inputs:
  x: integers(0, 100, 128)
outputs:
  sums: new(16, dtype=torch.int32)
  flags: new(16, dtype=torch.int32)
  pairs: new(64, dtype=torch.int32)
sizes: [128]
expected:
  sums: x.view(16, 8).sum(1).to(torch.int32)
  flags: ((x.view(16, 8) > 90).any(1).int() + 2 * (x.view(16, 8) > 50).sum(1)).to(torch.int32)
  pairs: x.view(64, 2).max(1).values
*/
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void tiles(const int* x, int* sums, int* flags, int* pairs) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    const int t = (int)block.thread_rank();
    const int v = x[t];
    const int sum = cg::reduce(tile, v, cg::plus<int>());
    const bool any = tile.any(v > 90);
    const unsigned votes = tile.ballot(v > 50);
    auto pair = cg::tiled_partition<2>(tile);
    const int largest = max(v, pair.shfl_xor(v, 1));
    if (tile.thread_rank() == 0) {
        sums[t / 8] = sum;
        flags[t / 8] = (any ? 1 : 0) + 2 * __popc(votes);
    }
    tile.sync();
    if (pair.thread_rank() == 0) pairs[t / 2] = largest;
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    tiles<<<1, 128>>>((const int*)in[0], (int*)out[0], (int*)out[1], (int*)out[2]);
}

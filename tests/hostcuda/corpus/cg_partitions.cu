/*
summary: Groups by label, by predicate and of what is left; one thread's work for all; a split barrier
inputs:
  x: integers(0, 7, 1500)
outputs:
  counts: zeros(7, dtype=torch.int32)
  kinds: full((1500,), -1, dtype=torch.int32)
  fours: full((1500,), -1, dtype=torch.int32)
  tickets: zeros(1, dtype=torch.int32)
  given: full((1500,), -1, dtype=torch.int32)
  turned: full((1500,), -1, dtype=torch.int32)
sizes: [1500]
expected:
  counts: torch.bincount(x.long(), minlength=7).to(torch.int32)
  kinds: kinds(x)
  fours: fours(x)
  tickets: torch.tensor([1500], dtype=torch.int32)
  given: torch.arange(1500, dtype=torch.int32)
  turned: torch.cat([part.flip(0) for part in x.split(128)]).to(torch.int32)
sorted: [given]
helpers: |
  def warps(x):
      return [x[first : first + 32].tolist() for first in range(0, len(x), 32)]
  def kinds(x):
      return torch.tensor([len(set(warp)) for warp in warps(x) for _ in warp], dtype=torch.int32)
  def fours(x):
      rows = []
      for warp in warps(x):
          large, place = sum(v > 2 for v in warp), 0
          for v in warp:
              rows.append(1000 * (place // 4) + min(4, large - place // 4 * 4) if v > 2 else -1)
              place += v > 2
      return torch.tensor(rows, dtype=torch.int32)
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <utility>
namespace cg = cooperative_groups;

__global__ void partitions(const int* x, int* counts, int* kinds, int* fours, int* tickets, int* given, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    __builtin_assume(n > 0);
    if (i >= n) return;
    const cg::coalesced_group here = cg::coalesced_threads();

    const auto same = cg::labeled_partition(here, x[i]);
    cg::invoke_one(same, [&] { atomicAdd(&counts[x[i]], (int)same.size()); });
    kinds[i] = (int)same.meta_group_size();

    const int first = cg::invoke_one_broadcast(same, [&] { return atomicAdd(tickets, (int)same.size()); });
    given[i] = first + (int)cg::thread_rank(same);

    if (x[i] > 2) {
        const cg::coalesced_group large = cg::coalesced_threads();
        const cg::coalesced_group four = cg::tiled_partition(large, 4);
        fours[i] = 1000 * (int)four.meta_group_rank() + (int)cg::group_size(four);
    }
}

__global__ void turn(const int* x, int* turned, int n) {
    __shared__ int tile[128];
    const cg::thread_block block = cg::this_thread_block();
    const int first = blockIdx.x * blockDim.x, here = min(n - first, (int)blockDim.x);
    if (threadIdx.x < here) tile[threadIdx.x] = x[first + threadIdx.x];
    auto token = block.barrier_arrive();
    const int from = here - 1 - (int)threadIdx.x;
    block.barrier_wait(std::move(token));
    if (threadIdx.x < here) turned[first + threadIdx.x] = tile[from];
    cg::this_thread().sync();
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0], blocks = (n + 127) / 128;
    const int* x = (const int*)in[0];
    partitions<<<blocks, 128>>>(x, (int*)out[0], (int*)out[1], (int*)out[2], (int*)out[3], (int*)out[4], n);
    turn<<<blocks, 128>>>(x, (int*)out[5], n);
}

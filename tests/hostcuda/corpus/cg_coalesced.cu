/*
summary: Aggregated atomics through coalesced_threads()
inputs:
  x: integers(0, 100, 1500)
outputs:
  count: zeros(1, dtype=torch.int32)
  kept: full((1500,), -1, dtype=torch.int32)
sizes: [1500]
expected:
  count: (x > 60).sum().to(torch.int32).view(1)
  kept: torch.cat([x[x > 60].sort().values, torch.full(((x <= 60).sum(),), -1, dtype=torch.int32)])
sorted: [kept]
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__device__ int next(int* counter) {
    cg::coalesced_group active = cg::coalesced_threads();
    int base = 0;
    if (active.thread_rank() == 0) base = atomicAdd(counter, (int)active.size());
    return active.shfl(base, 0) + (int)active.thread_rank();
}

__global__ void keep_large(const int* x, int* count, int* kept, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 60) kept[next(count)] = x[i];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    keep_large<<<(n + 127) / 128, 128>>>((const int*)in[0], (int*)out[0], (int*)out[1], n);
}

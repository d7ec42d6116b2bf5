/*
summary: __match_any_sync groups equal keys of a warp, the lowest lane of each group adds for all
inputs:
  x: integers(0, 10, 2048)
outputs:
  bins: zeros(10, dtype=torch.int32)
sizes: [2048]
expected:
  bins: torch.bincount(x.long(), minlength=10).to(torch.int32)
*/
#include <cuda_runtime.h>

__global__ void histogram(const int* x, int* bins) {
    const int key = x[blockIdx.x * blockDim.x + threadIdx.x];
    const unsigned peers = __match_any_sync(0xffffffffu, key);
    const int leader = __ffs(peers) - 1;
    if ((threadIdx.x & 31) == leader) atomicAdd(&bins[key], __popc(peers));
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    histogram<<<8, 256>>>((const int*)in[0], (int*)out[0]);
}

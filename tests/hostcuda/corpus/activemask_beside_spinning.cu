/*
summary: __activemask() and coalesced_threads() in a warp while another one spins, and while other lanes of their own spin
inputs:
  x: integers(0, 1000, 64)
outputs:
  flags: full((2,), 0, dtype=torch.int32)
  y: new(3, dtype=torch.int32)
sizes: [64]
expected:
  y: torch.stack((x.sum(), torch.tensor(0xffff), torch.tensor(16))).int()
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void vote(const int* x, int* flags, int* y) {
    const int t = threadIdx.x;
    if (t < 16) {
        const unsigned mask = __activemask();
        const int size = (int)cg::coalesced_threads().size();
        if (t == 0) {
            y[1] = (int)mask;
            y[2] = size;
            __threadfence();
            atomicExch(&flags[0], 1);
        }
    } else if (t < 32) {
        while (atomicAdd(&flags[0], 0) == 0) {}
    } else if (t == 32) {
        while (atomicAdd(&flags[1], 0) == 0) {}
        __threadfence();
        int sum = 0;
        for (int i = 0; i < 64; ++i) sum += x[i];
        y[0] = sum;
    }
    if (t == 0) atomicExch(&flags[1], 1);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    vote<<<1, (int)size[0]>>>((const int*)in[0], (int*)out[0], (int*)out[1]);
}

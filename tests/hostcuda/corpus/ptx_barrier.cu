/*
summary: Inline PTX for a numbered barrier of the whole block, memory fences, shared loads and stores, atomics
inputs:
  x: integers(0, 50, 128)
outputs:
  y: new(128, dtype=torch.int32)
  largest: zeros(1, dtype=torch.int32)
sizes: [128]
arch: 70
expected:
  y: x.flip(0) + torch.arange(128, dtype=torch.int32)
  largest: x.max().view(1)
*/
#include <cuda_runtime.h>

__global__ void reverse(const int* x, int* y, int* largest) {
    __shared__ int s[128];
    const int t = threadIdx.x;
    const unsigned base = (unsigned)__cvta_generic_to_shared(s);
    int v, rank;
    asm volatile("st.shared.s32 [%0], %1;" ::"r"(base + 4 * t), "r"(x[t]) : "memory");
    asm volatile("bar.sync 1, 128;" ::: "memory");
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(v) : "r"(base + 4 * (127 - t)));
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(rank));
    y[t] = v + rank;
    int before;
    asm volatile("atom.global.max.s32 %0, [%1], %2;" : "=r"(before) : "l"(largest), "r"(v) : "memory");
    asm volatile("membar.gl;" ::: "memory");
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    if (before > 1000) y[t] = 0;
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    reverse<<<1, 128>>>((const int*)in[0], (int*)out[0], (int*)out[1]);
}

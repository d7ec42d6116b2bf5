/*
summary: Blocks of a cluster arrive without releasing what they wrote, and no fence does it for them
twin: cluster_ptx
inputs:
  x: normal(512)
outputs:
  y: new(512)
sizes: [512]
arch: 90
defect:
  status: data_race
  kernel: relaxed
  tool: null
*/
#include <cuda_runtime.h>

__device__ unsigned mapped(const void* place, unsigned rank) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(place)), "r"(rank));
    return there;
}

__global__ void __cluster_dims__(2, 1, 1) relaxed(const float* x, float* y) {
    __shared__ float held[128];
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int t = threadIdx.x, i = blockIdx.x * 128 + t;
    held[t] = x[i];  // defect
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
    asm volatile("barrier.cluster.wait;" ::: "memory");
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(mapped(&held[t], rank ^ 1)) : "memory");  // defect
    y[i] = value;
    asm volatile("barrier.cluster.arrive;" ::: "memory");
    asm volatile("barrier.cluster.wait;" ::: "memory");
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    relaxed<<<4, 128>>>((const float*)in[0], (float*)out[0]);
}

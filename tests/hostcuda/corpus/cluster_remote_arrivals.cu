/*
summary: Blocks of a cluster write into the next one's shared memory and arrive at a counting barrier there, phase after phase, with no barrier of the cluster
inputs:
  x: normal(4, 8, 64)
outputs:
  y: new(4, 64)
sizes: [8]
helpers: |
  def chain(x):
      sums = torch.zeros(4, 64)
      for step in range(8):
          sums = sums + x[:, step].roll(1, 0)
      return sums
expected:
  y: chain(x)
arch: 90
*/
#include <cuda_runtime.h>

__device__ unsigned at(const void* place) { return (unsigned)__cvta_generic_to_shared(place); }

__device__ unsigned mapped(unsigned address, unsigned rank) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

__device__ void begin(unsigned barrier, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory"); }

__device__ void arrive(unsigned barrier) { asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory"); }

__device__ void wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(barrier), "r"(parity) : "memory");
}

__global__ void __cluster_dims__(4, 1, 1) chain(const float* x, float* y, int steps) {
    __shared__ float slot[64];
    __shared__ alignas(8) unsigned long long full, empty;
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int t = threadIdx.x;
    if (t == 0) {
        begin(at(&full), 64);
        begin(at(&empty), 64);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    const unsigned next = (rank + 1) % 4, before = (rank + 3) % 4;
    const unsigned to = mapped(at(&slot[t]), next), filled = mapped(at(&full), next), emptied = mapped(at(&empty), before);
    float sum = 0.0f;
    for (int step = 0; step < steps; step++) {
        if (step > 0) wait(at(&empty), (step - 1) & 1);
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(x[(rank * steps + step) * 64 + t]) : "memory");
        arrive(filled);
        wait(at(&full), step & 1);
        sum += slot[t];
        arrive(emptied);
    }
    wait(at(&empty), (steps - 1) & 1);  // what this block does elsewhere has been seen, and nobody reaches into it again
    y[rank * 64 + t] = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    chain<<<4, 64>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

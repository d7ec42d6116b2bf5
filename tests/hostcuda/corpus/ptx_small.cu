/*
summary: "Small inline PTX: lane id, cached loads, lop3, prmt, bfe, predicated move, ex2, fma, red"
inputs:
  x: integers(0, 1000000, 64)
  f: uniform(64)
outputs:
  y: new(64, 5, dtype=torch.int32)
  g: new(64)
  sum: zeros(1, dtype=torch.int32)
sizes: [64]
arch: 70
expected:
  y: torch.stack([torch.arange(64) % 32, x ^ (x >> 3) ^ 77, (x & 0xff) * 0x01010101 - ((x & 0x80) << 25), (x >> 4) & 0x3ff, torch.where(x > 500000, 1, 2)], 1).to(torch.int32)
  g: torch.exp2(f.double()) * 2 + 1
  sum: x.sum().to(torch.int32).view(1)
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

__device__ __forceinline__ unsigned lane() {
    unsigned id;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(id));
    return id;
}

__global__ void small(const int* x, const float* f, int* y, float* g, int* sum) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v;
    asm volatile("ld.global.nc.L1::no_allocate.s32 %0, [%1];" : "=r"(v) : "l"(x + i));
    y[i * 5] = (int)lane();
    unsigned a;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(a) : "r"(v), "r"(v >> 3), "r"(77));
    y[i * 5 + 1] = (int)a;
    asm("prmt.b32 %0, %1, 0, 0x0000;" : "=r"(a) : "r"(v));
    y[i * 5 + 2] = (int)a;
    asm("bfe.u32 %0, %1, 4, 10;" : "=r"(a) : "r"(v));
    y[i * 5 + 3] = (int)a;
    asm volatile("{\n\t.reg .pred p;\n\tsetp.gt.s32 p, %1, 500000;\n\tmov.u32 %0, 2;\n\t@p mov.u32 %0, 1;\n\t}"
                 : "=r"(a) : "r"(v));
    y[i * 5 + 4] = (int)a;
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(f[i]));
    asm("fma.rn.f32 %0, %1, 0f40000000, 0f3F800000;" : "=f"(e) : "f"(e));
    asm volatile("st.global.cs.f32 [%0], %1;" ::"l"(g + i), "f"(e) : "memory");
    asm volatile("red.global.add.s32 [%0], %1;" ::"l"(sum), "r"(v) : "memory");
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    small<<<2, 32>>>((const int*)in[0], (const float*)in[1], (int*)out[0], (float*)out[1], (int*)out[2]);
}

/*
summary: "PTX with labels that are numbered by %=, and products of integers that saturate"
inputs:
  x: integers(1, 100, 32)
outputs:
  y: new(32, dtype=torch.int32)
  high: new(32, 4, dtype=torch.int32)
  low: new(32, 4, dtype=torch.int32)
sizes: [32]
arch: 80
expected:
  y: x * 2
  high: torch.full((32, 4), 2**31 - 1, dtype=torch.int32)
  low: torch.full((32, 4), -2**31 + 7 + 32 * 127 * 128, dtype=torch.int32)
*/
#include <cuda_runtime.h>
#include <cstdint>

__device__ __forceinline__ int doubled(int n) {
    int count;
    asm volatile(
        "{\n\t.reg .pred p;\n\t.reg .u32 left;\n\tmov.u32 left, %1;\n\tmov.u32 %0, 0;\n"
        "AGAIN_%=:\n\tadd.u32 %0, %0, 2;\n\tsub.u32 left, left, 1;\n\tsetp.ne.u32 p, left, 0;\n\t@p bra AGAIN_%=;\n\t}"
        : "=r"(count) : "r"(n));
    return count;
}

template <bool Saturated> __device__ void multiply(int (&d)[4], uint32_t a, uint32_t b, int start) {
    if constexpr (Saturated)
        asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%6,%6,%6,%6};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a), "r"(b), "r"(start));
    else
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%6,%6,%6,%6};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a), "r"(b), "r"(start));
}

__global__ void further(const int* x, int* y, int4* high, int4* low) {
    const int lane = threadIdx.x;
    y[lane] = doubled(x[lane]) + doubled(1) - 2;
    int d[4];
    multiply<true>(d, 0x7f7f7f7fu, 0x7f7f7f7fu, 0x7fffff00);
    high[lane] = make_int4(d[0], d[1], d[2], d[3]);
    multiply<false>(d, 0x80808080u, 0x81818181u, -0x7fffffff + 6);  // -128 times -127
    low[lane] = make_int4(d[0], d[1], d[2], d[3]);
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    further<<<1, 32>>>((const int*)in[0], (int*)out[0], (int4*)out[1], (int4*)out[2]);
}

/*
summary: "Inline PTX: cp.async into shared memory, ldmatrix, mma.sync.m16n8k16"
inputs:
  a: normal(16, 32).half()
  b: normal(8, 32).half()
outputs:
  c: new(16, 8)
sizes: [32]
arch: 80
expected:
  c: a.double() @ b.double().t()
tolerance: 1.0e-5
*/
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define LDMATRIX_X4(R0, R1, R2, R3, addr)                                                     \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"         \
                 : "=r"(R0), "=r"(R1), "=r"(R2), "=r"(R3)                                     \
                 : "r"(addr))
#define LDMATRIX_X2(R0, R1, addr) \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n" : "=r"(R0), "=r"(R1) : "r"(addr))

__device__ __forceinline__ void copy16(uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2;\n" ::"r"(to), "l"(from), "n"(16));
}

__global__ void product(const half* a, const half* b, float* c, int k) {
    __shared__ __align__(128) half as[16 * 32];
    __shared__ __align__(128) half bs[8 * 32];
    const int lane = threadIdx.x;
    const uint32_t a0 = static_cast<uint32_t>(__cvta_generic_to_shared(as));
    const uint32_t b0 = static_cast<uint32_t>(__cvta_generic_to_shared(bs));
    for (int i = lane; i < 16 * 32 / 8; i += 32) copy16(a0 + i * 16, a + i * 8);
    copy16(b0 + lane * 16, b + lane * 8);
    asm volatile("cp.async.commit_group;\n");
    asm volatile("cp.async.wait_group 0;\n");
    __syncthreads();
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k0 = 0; k0 < k; k0 += 16) {
        uint32_t ra[4], rb[2];
        LDMATRIX_X4(ra[0], ra[1], ra[2], ra[3], a0 + ((lane % 16) * 32 + k0 + lane / 16 * 8) * 2);
        LDMATRIX_X2(rb[0], rb[1], b0 + ((lane % 8) * 32 + k0 + lane / 8 % 2 * 8) * 2);
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    }
    const int row = lane / 4, column = lane % 4 * 2;
    c[row * 8 + column] = d[0];
    c[row * 8 + column + 1] = d[1];
    c[(row + 8) * 8 + column] = d[2];
    c[(row + 8) * 8 + column + 1] = d[3];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    product<<<1, 32>>>((const half*)in[0], (const half*)in[1], (float*)out[0], (int)size[0]);
}

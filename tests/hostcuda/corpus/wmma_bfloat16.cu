/*
summary: wmma on bfloat16, shape 32 x 8 x 16, through shared memory, column-major factor
inputs:
  a: normal(32, 16).bfloat16()
  b: normal(8, 16).bfloat16()
outputs:
  c: new(32, 8)
sizes: [1]
arch: 80
expected:
  c: a.double() @ b.double().t()
tolerance: 1.0e-5
*/
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mma.h>
using namespace nvcuda::wmma;

__global__ void product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
    __shared__ __align__(32) __nv_bfloat16 as[32 * 16];
    __shared__ __align__(32) __nv_bfloat16 bs[8 * 16];
    for (int i = threadIdx.x; i < 32 * 16; i += 32) as[i] = a[i];
    for (int i = threadIdx.x; i < 8 * 16; i += 32) bs[i] = b[i];
    __syncwarp();
    fragment<matrix_a, 32, 8, 16, __nv_bfloat16, row_major> fa;
    fragment<matrix_b, 32, 8, 16, __nv_bfloat16, col_major> fb;
    fragment<accumulator, 32, 8, 16, float> sum;
    fill_fragment(sum, 0.0f);
    load_matrix_sync(fa, as, 16);
    load_matrix_sync(fb, bs, 16);
    mma_sync(sum, fa, fb, sum);
    store_matrix_sync(c, sum, 8, mem_row_major);
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    product<<<1, 32>>>((const __nv_bfloat16*)in[0], (const __nv_bfloat16*)in[1], (float*)out[0]);
}

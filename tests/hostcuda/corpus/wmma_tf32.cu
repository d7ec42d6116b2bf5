/*
summary: wmma on tf32, rounding with __float_to_tf32, accumulator loaded from memory and stored column-major
inputs:
  a: tf32(normal(16, 16))
  b: tf32(normal(16, 16))
  c: normal(16, 16)
outputs:
  d: new(16, 16)
sizes: [16]
arch: 80
expected:
  d: (a.double() @ b.double() + c.double()).t()
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>
#include <mma.h>
using namespace nvcuda;

__global__ void product(const float* a, const float* b, const float* c, float* d) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
    wmma::load_matrix_sync(sum, c, 16, wmma::mem_row_major);
    for (int k = 0; k < 16; k += 8) {
        wmma::load_matrix_sync(fa, a + k, 16);
        wmma::load_matrix_sync(fb, b + k * 16, 16);
#pragma unroll
        for (int i = 0; i < fa.num_elements; ++i) fa.x[i] = wmma::__float_to_tf32(fa.x[i]);
#pragma unroll
        for (int i = 0; i < fb.num_elements; ++i) fb.x[i] = wmma::__float_to_tf32(fb.x[i]);
        wmma::mma_sync(sum, fa, fb, sum);
    }
    wmma::store_matrix_sync(d, sum, 16, wmma::mem_col_major);
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    product<<<1, 32>>>((const float*)in[0], (const float*)in[1], (const float*)in[2], (float*)out[0]);
}

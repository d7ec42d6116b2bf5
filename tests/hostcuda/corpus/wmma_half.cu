/*
summary: nvcuda::wmma, half factors, float sums, elementwise scaling of the fragment
inputs:
  a: normal(32, 32).half()
  b: normal(32, 32).half()
outputs:
  c: new(32, 32)
sizes: [32]
arch: 70
expected:
  c: (a.double() @ b.double()) * 0.5 + 1
tolerance: 1.0e-5
*/
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>
using namespace nvcuda;

__global__ void product(const half* a, const half* b, float* c, int n) {
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < n; k += 16) {
        wmma::load_matrix_sync(fa, a + row * n + k, n);
        wmma::load_matrix_sync(fb, b + k * n + column, n);
        wmma::mma_sync(sum, fa, fb, sum);
    }
    for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = sum.x[i] * 0.5f + 1.0f;
    wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    product<<<dim3(n / 16, n / 16), 32>>>((const half*)in[0], (const half*)in[1], (float*)out[0], n);
}

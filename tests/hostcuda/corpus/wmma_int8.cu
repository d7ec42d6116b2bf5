/*
summary: wmma on int8 with int sums, two warps a block
inputs:
  a: integers(-128, 128, 32, 16).to(torch.int8)
  b: integers(-128, 128, 16, 16).to(torch.int8)
outputs:
  c: new(32, 16, dtype=torch.int32)
sizes: [1]
arch: 72
expected:
  c: a.int() @ b.int()
*/
#include <cuda_runtime.h>
#include <mma.h>
using namespace nvcuda;

__global__ void product(const signed char* a, const signed char* b, int* c) {
    const int row = threadIdx.x / 32 * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> sum;
    wmma::fill_fragment(sum, 0);
    wmma::load_matrix_sync(fa, a + row * 16, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(sum, fa, fb, sum);
    wmma::store_matrix_sync(c + row * 16, sum, 16, wmma::mem_row_major);
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    product<<<1, 64>>>((const signed char*)in[0], (const signed char*)in[1], (int*)out[0]);
}

/*
summary: A barrier is told to expect more bytes than the bulk copy brings
twin: bulk_copies
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
arch: 90
defect:
  status: barrier_error
  kernel: turned
  tool: synccheck
*/
#include <cuda/barrier>
#include <cuda_runtime.h>

#include <utility>
#pragma nv_diag_suppress static_var_with_dynamic_init

__global__ void turned(const float* x, float* y) {
    __shared__ alignas(16) float row[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> full;
    if (threadIdx.x == 0) init(&full, blockDim.x);
    __syncthreads();
    cuda::barrier<cuda::thread_scope_block>::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(row, x, cuda::aligned_size_t<16>(sizeof(row) / 2), full);
        token = cuda::device::barrier_arrive_tx(full, 1, sizeof(row));
    } else {
        token = full.arrive();
    }
    full.wait(std::move(token));  // defect
    y[threadIdx.x] = row[63 - threadIdx.x];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    turned<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}

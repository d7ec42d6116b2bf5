/*
summary: Only the thread that fetches a row in bulk waits for its arrival
twin: bulk_copies
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
arch: 90
defect:
  status: data_race
  kernel: turned
  tool: racecheck
*/
#include <cuda/barrier>
#include <cuda_runtime.h>

#include <utility>
#pragma nv_diag_suppress static_var_with_dynamic_init

__global__ void turned(const float* x, float* y) {
    __shared__ alignas(16) float row[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> full;
    if (threadIdx.x == 0) init(&full, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(row, x, cuda::aligned_size_t<16>(sizeof(row)), full);  // defect
        auto token = cuda::device::barrier_arrive_tx(full, 1, sizeof(row));
        full.wait(std::move(token));
    }
    y[threadIdx.x] = row[63 - threadIdx.x];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    turned<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}

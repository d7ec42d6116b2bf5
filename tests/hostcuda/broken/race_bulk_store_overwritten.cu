/*
summary: A row is written where a bulk copy is still reading the one before
twin: bulk_copies
inputs:
  x: normal(4, 64)
outputs:
  y: new(4, 64)
sizes: [4]
arch: 90
defect:
  status: data_race
  kernel: turned
  tool: null
*/
#include <cuda_runtime.h>

__global__ void turned(const float* x, float* y, int rows) {
    __shared__ alignas(16) float out[64];
    for (int row = 0; row < rows; ++row) {
        out[threadIdx.x] = x[row * 64 + 63 - threadIdx.x];  // defect
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y + row * 64), "r"((unsigned)__cvta_generic_to_shared(out)) : "memory");  // defect
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
        __syncthreads();
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    turned<<<1, 64>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

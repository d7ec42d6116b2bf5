/*
summary: A block gives a semaphore back before it has written what the semaphore guards
twin: latches_semaphores
inputs:
  x: normal(8, 32)
outputs:
  total: zeros(32)
sizes: [8]
defect:
  status: data_race
  kernel: add
  tool: null
*/
#include <cuda/semaphore>
#include <cuda_runtime.h>

__device__ cuda::binary_semaphore<cuda::thread_scope_device> one(1);

__global__ void add(const float* x, float* total) {
    if (threadIdx.x != 0) return;
    one.acquire();
    const float before = total[0];  // defect
    one.release();
    total[0] = before + x[blockIdx.x * 32];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    add<<<(unsigned)size[0], 32>>>((const float*)in[0], (float*)out[0]);
}

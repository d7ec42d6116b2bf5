/*
summary: A thread takes a semaphore in global memory that it holds already
twin: latches_semaphores
inputs:
  x: normal(64)
outputs:
  total: zeros(1)
sizes: [64]
defect:
  status: barrier_error
  kernel: add
  tool: null
*/
#include <cuda/semaphore>
#include <cuda_runtime.h>

__device__ cuda::binary_semaphore<cuda::thread_scope_device> one(1);

__device__ void one_more(float* total, float v) {
    one.acquire();  // defect
    *total += v;
    one.release();
}

__global__ void add(const float* x, float* total) {
    one.acquire();
    if (x[threadIdx.x] > 0.0f) one_more(total, x[threadIdx.x]);
    one.release();
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    add<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}

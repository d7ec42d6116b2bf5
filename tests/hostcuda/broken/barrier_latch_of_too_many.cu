/*
summary: A latch counts all threads of the block, of which some return before they come
twin: latches_semaphores
inputs:
  x: normal(250)
outputs:
  y: new(250)
sizes: [250]
defect:
  status: barrier_error
  kernel: turn
  tool: null
*/
#include <cuda/latch>
#include <cuda_runtime.h>

#include <new>

using Latch = cuda::latch<cuda::thread_scope_block>;

__global__ void turn(const float* x, float* y, int n) {
    __shared__ alignas(Latch) unsigned char raw[sizeof(Latch)];
    Latch& all = *reinterpret_cast<Latch*>(raw);
    __shared__ float held[256];
    if (threadIdx.x == 0) new (&all) Latch(blockDim.x);
    __syncthreads();
    if (threadIdx.x >= n) return;
    held[threadIdx.x] = x[threadIdx.x];
    all.arrive_and_wait();  // defect
    y[threadIdx.x] = held[n - 1 - threadIdx.x];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    turn<<<1, 256>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

/*
summary: Threads count a latch down and read what others wrote without waiting for it
twin: latches_semaphores
inputs:
  x: normal(256)
outputs:
  y: new(256)
sizes: [256]
defect:
  status: data_race
  kernel: turn
  tool: racecheck
*/
#include <cuda/latch>
#include <cuda_runtime.h>

#include <new>

using Latch = cuda::latch<cuda::thread_scope_block>;

__global__ void turn(const float* x, float* y) {
    __shared__ alignas(Latch) unsigned char raw[sizeof(Latch)];
    Latch& all = *reinterpret_cast<Latch*>(raw);
    __shared__ float held[256];
    if (threadIdx.x == 0) new (&all) Latch(blockDim.x);
    __syncthreads();
    held[threadIdx.x] = x[threadIdx.x];  // defect
    all.count_down();
    y[threadIdx.x] = held[255 - threadIdx.x];  // defect
    all.wait();
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    turn<<<1, 256>>>((const float*)in[0], (float*)out[0]);
}

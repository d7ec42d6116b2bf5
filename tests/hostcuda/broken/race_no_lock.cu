/*
summary: Threads of one block, in one round or another, add to the same row without a lock
twin: spin_lock_in_a_block
inputs:
  x: normal(1, 64)
outputs:
  y: new(1, 64)
  tmp: new(1, 64)
  bar: zeros(2, dtype=torch.int32)
  row: zeros(16)
  lock: zeros(1, dtype=torch.int32)
sizes: [1]
defect:
  status: data_race
  kernel: unlocked
  tool: null
*/
#include <cuda_runtime.h>
__device__ void grid_barrier(volatile int* bar, int n) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd((int*)bar, 1);
        while (*bar < n) __nanosleep(32);
        __threadfence();
    }
    __syncthreads();
}
__global__ void unlocked(const float* x, float* tmp, float* y, int* bar, float* row, int* lock) {
    const int b = blockIdx.x, t = threadIdx.x;
    tmp[b * 64 + t] = x[b * 64 + t] * 2;
    grid_barrier(bar, gridDim.x);
    const int o = (b + gridDim.x - 1) % gridDim.x;
    y[b * 64 + t] = tmp[o * 64 + t];
    for (int turn = 0; turn < 32; ++turn) {
        if ((t & 31) == turn) {
            for (int i = 0; i < 16; ++i) row[i] += 1.0f;  // defect
        }
    }
    (void)y;
}
extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    unlocked<<<1, 64>>>((const float*)in[0], (float*)out[1], (float*)out[0], (int*)out[2], (float*)out[3], (int*)out[4]);
}

/*
summary: A barrier of all blocks by a counter, and a lock that one thread at a time of a block takes
inputs:
  x: normal(8, 64)
outputs:
  y: new(8, 64)
  tmp: new(8, 64)
  bar: zeros(2, dtype=torch.int32)
  row: zeros(16)
  lock: zeros(1, dtype=torch.int32)
sizes: [8]
expected:
  y: x.roll(1, 0) * 2
  row: torch.full((16,), 64.0 * 8)
tolerance: 1.0e-6
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
__global__ void k(const float* x, float* tmp, float* y, int* bar, float* row, int* lock) {
    const int b = blockIdx.x, t = threadIdx.x;
    tmp[b * 64 + t] = x[b * 64 + t] * 2;
    grid_barrier(bar, gridDim.x);
    const int o = (b + gridDim.x - 1) % gridDim.x;
    y[b * 64 + t] = tmp[o * 64 + t];
    // critical section, one thread at a time (not all lanes of a warp spin)
    for (int turn = 0; turn < 32; ++turn) {
        if ((t & 31) == turn) {
            while (atomicCAS(lock, 0, 1) != 0) { }
            __threadfence();
            for (int i = 0; i < 16; ++i) row[i] += 1.0f;
            __threadfence();
            atomicExch(lock, 0);
        }
        __syncwarp();
    }
    (void)y;
}
extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    k<<<8, 64>>>((const float*)in[0], (float*)out[1], (float*)out[0], (int*)out[2], (float*)out[3], (int*)out[4]);
}

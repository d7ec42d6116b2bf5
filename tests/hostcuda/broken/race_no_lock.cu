/*
summary: Threads of one block add to the same row, one after another in each warp, but without a lock between warps
twin: spin_lock_in_a_block
inputs:
  x: normal(16)
outputs:
  row: zeros(16)
sizes: [16]
defect:
  status: data_race
  kernel: unlocked
  tool: null
*/
#include <cuda_runtime.h>

__global__ void unlocked(const float* x, float* row) {
    for (int turn = 0; turn < 32; ++turn) {
        if ((threadIdx.x & 31) == turn) {
            __threadfence();
            for (int i = 0; i < 16; ++i) row[i] += x[i];  // defect
            __threadfence();
        }
        __syncwarp();
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    unlocked<<<1, 64>>>((const float*)in[0], (float*)out[0]);
}

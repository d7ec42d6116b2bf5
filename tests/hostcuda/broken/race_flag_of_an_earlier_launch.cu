/*
summary: A thread raises the flag for what another warp wrote, without a barrier; in the launch before another thread raised it
twin: fence_handshake
inputs:
  x: normal(64)
outputs:
  data: new(64)
  flag: full((1,), 0, dtype=torch.int32)
  y: new(64)
sizes: [64]
defect:
  status: data_race
  kernel: hand_over_again
  tool: null
*/
#include <cuda_runtime.h>

__device__ void hand_over_by(const float* x, float* data, int* flag, float* y, int writer, int releaser, int round) {
    if (blockIdx.x == 0) {
        if (threadIdx.x == writer) data[0] = x[round];  // defect
        if (threadIdx.x == releaser) {
            __threadfence();
            atomicExch(flag, round);
        }
    } else if (threadIdx.x == 0) {
        while (atomicAdd(flag, 0) != round) {}
        __threadfence();
        y[round] = data[0];  // defect
    }
}

__global__ void hand_over(const float* x, float* data, int* flag, float* y) { hand_over_by(x, data, flag, y, 40, 40, 1); }
__global__ void hand_over_again(const float* x, float* data, int* flag, float* y) { hand_over_by(x, data, flag, y, 40, 0, 2); }

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    hand_over<<<2, (int)size[0]>>>((const float*)in[0], (float*)out[0], (int*)out[1], (float*)out[2]);
    hand_over_again<<<2, (int)size[0]>>>((const float*)in[0], (float*)out[0], (int*)out[1], (float*)out[2]);
}

/*
summary: A third block overwrites the flag, without a fence, and its reader takes that for the first block's signal
twin: fence_handshake
inputs:
  x: normal(1)
outputs:
  data: new(1)
  flag: full((1,), 0, dtype=torch.int32)
  y: new(1)
sizes: [32]
defect:
  status: data_race
  kernel: hand_over
  tool: null
known_gap: what a signal told is kept for its place, whoever writes there next
*/
#include <cuda_runtime.h>

__global__ void hand_over(const float* x, float* data, int* flag, float* y) {
    if (threadIdx.x != 0) return;
    volatile int* raised = flag;
    if (blockIdx.x == 0) {
        data[0] = x[0];  // defect
        __threadfence();
        *raised = 1;
    } else if (blockIdx.x == 1) {
        while (*raised == 0) {}
        *raised = 2;
    } else {
        while (*raised != 2) {}
        __threadfence();
        y[0] = data[0];  // defect
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    hand_over<<<3, (int)size[0]>>>((const float*)in[0], (float*)out[0], (int*)out[1], (float*)out[2]);
}

/*
summary: All lanes shuffle with a mask that names only the lower half
twin: warp_divergent_masks
inputs:
  x: integers(0, 100, 32)
outputs:
  y: new(32, dtype=torch.int32)
sizes: [32]
defect:
  status: barrier_error
  kernel: broadcast
  tool: synccheck
*/
#include <cuda_runtime.h>

__global__ void broadcast(const int* x, int* y) {
    const int lane = threadIdx.x;
    y[lane] = __shfl_sync(0x0000ffffu, x[lane], 0);  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    broadcast<<<1, 32>>>((const int*)in[0], (int*)out[0]);
}

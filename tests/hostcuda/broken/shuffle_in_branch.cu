/*
summary: A shuffle with the full mask inside a branch that half of the warp takes, while the others wait behind it
twin: warp_divergent_masks
inputs:
  x: integers(0, 100, 32)
outputs:
  y: new(32, dtype=torch.int32)
sizes: [32]
defect:
  status: barrier_error
  kernel: pair_sums
  tool: synccheck
*/
#include <cuda_runtime.h>

__global__ void pair_sums(const int* x, int* y) {
    const int lane = threadIdx.x;
    int v = x[lane];
    if (lane < 16) {
        v += __shfl_xor_sync(0xffffffffu, v, 1);  // defect
    }
    __syncwarp();  // defect
    y[lane] = v;
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    pair_sums<<<1, 32>>>((const int*)in[0], (int*)out[0]);
}

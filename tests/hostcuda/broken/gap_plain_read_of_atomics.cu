/*
summary: A plain read of a counter in global memory that other blocks still count up
twin: reduce_last_block
inputs:
  x: normal(64)
outputs:
  count: full((1,), 0, dtype=torch.int32)
  y: new(4, dtype=torch.int32)
sizes: [64]
defect:
  status: data_race
  kernel: look
  tool: null
known_gap: kernels look at global memory before they update it atomically, which is harmless
*/
#include <cuda_runtime.h>

__global__ void look(const float* x, int* count, int* y) {
    if (x[threadIdx.x] > -100.0f) atomicAdd(count, 1);  // defect
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = *count;  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    look<<<4, (int)size[0]>>>((const float*)in[0], (int*)out[0], (int*)out[1]);
}

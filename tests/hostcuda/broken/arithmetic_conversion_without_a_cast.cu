/*
summary: A conversion without a cast of numbers that the integer can't hold, whose result on a GPU is not emulated
twin: shifts_and_conversions
inputs:
  x: torch.tensor([1.0e20, 1.0])
outputs:
  y: new(2, dtype=torch.int32)
sizes: [2]
defect:
  status: not_emulated
  kernel: convert
  tool: null
*/
#include <cuda_runtime.h>

__global__ void convert(const float* x, int* y) {
    y[threadIdx.x] = x[threadIdx.x];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    convert<<<1, (int)size[0]>>>((const float*)in[0], (int*)out[0]);
}

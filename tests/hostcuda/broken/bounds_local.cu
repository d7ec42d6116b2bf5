/*
summary: One element past a local array whose index is known only at run time
twin: recursion
inputs:
  x: integers(0, 8, 64)
outputs:
  y: new(64, dtype=torch.int32)
sizes: [64]
defect:
  status: memory_error
  kernel: lookup
  tool: null
*/
#include <cuda_runtime.h>

__global__ void lookup(const int* x, int* y) {
    int table[7];
    for (int i = 0; i < 7; ++i) table[i] = i * x[0];
    y[threadIdx.x] = table[x[threadIdx.x]];  // defect
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    lookup<<<1, 64>>>((const int*)in[0], (int*)out[0]);
}

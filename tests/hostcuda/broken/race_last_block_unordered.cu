/*
summary: The last block sums what others wrote, without fence and without an atomic ticket that orders anything (plain counter)
twin: reduce_last_block
inputs:
  x: normal(512)
outputs:
  partial: zeros(4)
  total: zeros(1)
  counter: zeros(1, dtype=torch.int32)
sizes: [512]
defect:
  status: data_race
  kernel: reduce
  tool: null
*/
#include <cuda_runtime.h>

__global__ void reduce(const float* x, float* partial, float* total, int* counter) {
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int i = 0; i < 128; ++i) sum += x[blockIdx.x * 128 + i];
        partial[blockIdx.x] = sum;  // defect
        *counter = *counter + 1;    // defect
        if (*counter == gridDim.x) {
            float all = 0.0f;
            for (int b = 0; b < gridDim.x; ++b) all += partial[b];  // defect
            *total = all;
        }
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    reduce<<<4, 32>>>((const float*)in[0], (float*)out[0], (float*)out[1], (int*)out[2]);
}

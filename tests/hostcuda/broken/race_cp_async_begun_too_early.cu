/*
summary: The next copy into a buffer begins before the barrier behind which the others have read it
twin: cp_async_pipeline
inputs:
  x: normal(8, 64)
outputs:
  y: new(64)
sizes: [8]
arch: 80
defect:
  status: data_race
  kernel: sum_reversed
  tool: racecheck
*/
#include <cuda_runtime.h>

__global__ void sum_reversed(const float* x, float* y, int rows) {
    __shared__ float tile[2][64];
    const int t = threadIdx.x;
    auto fetch = [&](int row) {
        const unsigned to = (unsigned)__cvta_generic_to_shared(&tile[row & 1][t]);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + row * 64 + t) : "memory");  // defect
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    fetch(0);
    float sum = 0.0f;
    for (int row = 0; row < rows; ++row) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        if (row + 1 < rows) fetch(row + 1);
        __syncthreads();
        sum += tile[row & 1][63 - t];  // defect
    }
    y[t] = sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    sum_reversed<<<1, 64>>>((const float*)in[0], (float*)out[0], (int)size[0]);
}

/*
summary: Cooperative launch, two phases divided by grid.sync()
inputs:
  x: normal(1024)
outputs:
  sums: new(8)
  y: new(1024)
sizes: [1024]
expected:
  y: x - x.double().mean().float()
tolerance: 1.0e-5
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void centre(const float* x, float* sums, float* y, int n) {
    cg::grid_group grid = cg::this_grid();
    __shared__ float partial[128];
    const int t = threadIdx.x, i = (int)grid.thread_rank();
    partial[t] = x[i];
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (t < step) partial[t] += partial[t + step];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = partial[0];
    grid.sync();
    float total = 0.0f;
    for (int b = 0; b < gridDim.x; ++b) total += sums[b];
    y[i] = x[i] - total / n;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = (const float*)in[0];
    float* sums = (float*)out[0];
    float* y = (float*)out[1];
    int n = (int)size[0];
    void* arguments[] = {(void*)&x, (void*)&sums, (void*)&y, (void*)&n};
    cudaLaunchCooperativeKernel((void*)centre, dim3(8), dim3(128), arguments, 0, 0);
}

/*
summary: The last block exits before grid.sync(), which waits for every block of the grid
twin: cg_grid_sync
inputs:
  x: normal(8)
outputs:
  y: new(8)
sizes: [8]
defect:
  status: barrier_error
  kernel: leave_last
  tool: null
*/
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void leave_last(const float* x, float* y) {
    const int b = blockIdx.x;
    if (b == (int)gridDim.x - 1) return;
    y[b] = x[b];
    cg::this_grid().sync();  // defect
    if (b == 1) y[7] = y[0];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = (const float*)in[0];
    float* y = (float*)out[0];
    void* arguments[] = {(void*)&x, (void*)&y};
    cudaLaunchCooperativeKernel((void*)leave_last, dim3((unsigned)size[0]), dim3(1), arguments, 0, 0);
}

/*
summary: CUB's temporary storage used by a transposing load and at once by a sort, without a barrier between them
twin: cub_block_parts
inputs:
  x: normal(512)
outputs:
  y: new(512)
sizes: [512]
defect:
  status: data_race
  kernel: load_and_sort
  tool: racecheck
*/
#include <cub/cub.cuh>
#include <cuda_runtime.h>

__global__ void load_and_sort(const float* x, float* y) {
    using Load = cub::BlockLoad<float, 128, 4, cub::BLOCK_LOAD_TRANSPOSE>;
    using Sort = cub::BlockRadixSort<float, 128, 4>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Sort::TempStorage sort;
    } storage;
    float items[4];
    Load(storage.load).Load(x, items);  // defect
    Sort(storage.sort).Sort(items);     // defect
    for (int i = 0; i < 4; ++i) y[threadIdx.x * 4 + i] = items[i];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    load_and_sort<<<1, 128>>>((const float*)in[0], (float*)out[0]);
}

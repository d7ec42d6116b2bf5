/*
summary: A device-wide sort is told of more items than its output has room for
twin: cub_device_parts
inputs:
  x: normal(1000)
outputs:
  y: new(900)
sizes: [1000]
defect:
  status: memory_error
  kernel: cub::DeviceRadixSort
  tool: memcheck
*/
#include <cub/cub.cuh>
#include <cuda_runtime.h>

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    size_t bytes = 0;
    void* storage;
    cub::DeviceRadixSort::SortKeys(nullptr, bytes, (const float*)in[0], (float*)out[0], (int)size[0]);
    cudaMalloc(&storage, bytes);
    cub::DeviceRadixSort::SortKeys(storage, bytes, (const float*)in[0], (float*)out[0], (int)size[0]);  // defect
    cudaFree(storage);
}

/*
summary: Occupancy query, device properties and function attributes decide the launch; warp size from the device
inputs:
  x: normal(1000)
outputs:
  y: new(1000)
  facts: new(5, dtype=torch.int32)
sizes: [1000]
expected:
  y: x.abs().sqrt()
  facts: torch.tensor([32, 1024, 128, 1, 1], dtype=torch.int32)
tolerance: 1.0e-6
*/
#include <cuda_runtime.h>

__global__ void __launch_bounds__(128) root(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = sqrtf(fabsf(x[i]));
}

struct Bytes {
    __host__ __device__ size_t operator()(int size) const { return size * 64 * sizeof(float); }
};

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    int device = -1;
    cudaGetDevice(&device);
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, device);
    cudaFuncAttributes attributes;
    cudaFuncGetAttributes(&attributes, root);
    int blocks = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, root, 128, 0);
    int least = 0, threads = 0;
    cudaOccupancyMaxPotentialBlockSizeVariableSMem(&least, &threads, root, Bytes());
    const int facts[5] = {properties.warpSize, properties.maxThreadsPerBlock, attributes.maxThreadsPerBlock, blocks >= 1,
                          least >= 1 && threads >= 32 && threads * 64 * sizeof(float) <= properties.sharedMemPerBlockOptin};
    root<<<min(8, blocks * properties.multiProcessorCount), 128>>>((const float*)in[0], (float*)out[0], (int)size[0]);
    cudaMemcpy(out[1], facts, sizeof(facts), cudaMemcpyHostToDevice);
}

/*
summary: Two streams, an event between them, asynchronous copies through a device buffer
inputs:
  x: normal(600)
outputs:
  y: new(600)
  z: new(600)
sizes: [600]
expected:
  y: x * 3
  z: x * 3 + 1
tolerance: 1.0e-6
*/
#include <cuda_runtime.h>

__global__ void multiply(const float* x, float* y, float f, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * f;
}
__global__ void add(const float* x, float* y, float s, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + s;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    float* buffer = nullptr;
    cudaMalloc(&buffer, n * sizeof(float));
    cudaStream_t first, second;
    cudaStreamCreate(&first);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaEvent_t done;
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    cudaStreamSynchronize(0);
    multiply<<<5, 128, 0, first>>>((const float*)in[0], buffer, 3.0f, n);
    cudaMemcpyAsync(out[0], buffer, n * sizeof(float), cudaMemcpyDeviceToDevice, first);
    cudaEventRecord(done, first);
    cudaStreamWaitEvent(second, done, 0);
    add<<<5, 128, 0, second>>>(buffer, (float*)out[1], 1.0f, n);
    cudaStreamSynchronize(second);
    cudaEventDestroy(done);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
    cudaFree(buffer);
}

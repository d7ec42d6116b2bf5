/*
summary: More than 48 KiB of dynamic shared memory after cudaFuncSetAttribute
inputs:
  x: normal(16000)
outputs:
  y: new(16000)
sizes: [16000]
arch: 80
expected:
  y: x.flip(0)
*/
#include <cuda_runtime.h>

__global__ void reverse(const float* x, float* y, int n) {
    extern __shared__ __align__(16) unsigned char raw[];
    float* s = reinterpret_cast<float*>(raw);
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    const size_t bytes = n * sizeof(float);
    cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    reverse<<<1, 256, bytes>>>((const float*)in[0], (float*)out[0], n);
}

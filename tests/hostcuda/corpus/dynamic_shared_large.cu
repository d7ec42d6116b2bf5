/*
summary: More than 48 KiB of dynamic shared memory after cudaFuncSetAttribute; without it the launch fails
inputs:
  x: normal(16000)
outputs:
  y: new(16000)
  code: new(1, dtype=torch.int32)
sizes: [16000]
arch: 80
expected:
  y: x.flip(0)
  code: torch.tensor([1], dtype=torch.int32)
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
    reverse<<<1, 256, bytes>>>((const float*)in[0], (float*)out[0], n);
    int code = (int)cudaGetLastError();
    cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    reverse<<<1, 256, bytes>>>((const float*)in[0], (float*)out[0], n);
    if (cudaGetLastError() != cudaSuccess) code = -1;
    cudaMemcpy(out[1], &code, sizeof(int), cudaMemcpyHostToDevice);
}

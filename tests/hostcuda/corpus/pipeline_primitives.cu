/*
summary: "cuda_pipeline.h: __pipeline_memcpy_async, commit and wait_prior"
inputs:
  x: normal(4, 32, 4)
outputs:
  y: new(32, 4)
sizes: [4]
arch: 80
expected:
  y: x.double().sum(0).flip(0)
tolerance: 1.0e-5
*/
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

__global__ void sum(const float4* x, float4* y, int rows) {
    __shared__ float4 tile[2][32];
    const int t = threadIdx.x;
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    __pipeline_memcpy_async(&tile[0][t], &x[t], sizeof(float4));
    __pipeline_commit();
    for (int row = 0; row < rows; ++row) {
        if (row + 1 < rows) __pipeline_memcpy_async(&tile[(row + 1) % 2][t], &x[(row + 1) * 32 + t], sizeof(float4));
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        const float4 v = tile[row % 2][31 - t];
        total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
        __syncthreads();
    }
    y[t] = total;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    sum<<<1, 32>>>((const float4*)in[0], (float4*)out[0], (int)size[0]);
}

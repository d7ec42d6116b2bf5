/*
summary: bfloat16 in and out, arithmetic in float, tanh approximation of GELU
inputs:
  x: normal(700).bfloat16()
outputs:
  y: new(700, dtype=torch.bfloat16)
sizes: [700]
expected:
  y: F.gelu(x.double(), approximate='tanh')
tolerance: 2.0e-2
*/
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu(float x) {
    const float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
}

__global__ void apply(const __nv_bfloat16* x, __nv_bfloat16* y, int n) {
    const int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 1 < n) {
        const __nv_bfloat162 v = *reinterpret_cast<const __nv_bfloat162*>(x + i);
        const float2 f = __bfloat1622float2(v);
        *reinterpret_cast<__nv_bfloat162*>(y + i) = __floats2bfloat162_rn(gelu(f.x), gelu(f.y));
    } else if (i < n) {
        y[i] = __float2bfloat16(gelu(__bfloat162float(x[i])));
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    apply<<<6, 64>>>((const __nv_bfloat16*)in[0], (__nv_bfloat16*)out[0], (int)size[0]);
}

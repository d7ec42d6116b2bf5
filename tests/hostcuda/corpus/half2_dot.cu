/*
summary: half2 fused multiply-adds, packed by __halves2half2, float4 loads of eight halves
inputs:
  a: normal(32, 64).half()
  b: normal(32, 64).half()
outputs:
  y: new(32)
sizes: [32]
expected:
  y: (a.double() * b.double()).sum(1)
tolerance: 2.0e-2
*/
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void dot(const __half* a, const __half* b, float* y) {
    const int row = blockIdx.x, t = threadIdx.x;
    const float4 pa = reinterpret_cast<const float4*>(a + row * 64)[t], pb = reinterpret_cast<const float4*>(b + row * 64)[t];
    const __half2* ha = reinterpret_cast<const __half2*>(&pa);
    const __half2* hb = reinterpret_cast<const __half2*>(&pb);
    __half2 sum = __float2half2_rn(0.0f);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum = __hfma2(ha[i], hb[i], sum);
    float v = __low2float(sum) + __high2float(sum);
    for (int d = 4; d > 0; d >>= 1) v += __shfl_down_sync(0xffu, v, d, 8);
    if (t == 0) y[row] = v;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    dot<<<(int)size[0], 8>>>((const __half*)in[0], (const __half*)in[1], (float*)out[0]);
}

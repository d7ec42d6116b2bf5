/*
summary: bfloat16 intrinsics with one rounding each, bit for bit
inputs:
  a: normal(512).bfloat16()
  b: normal(512).bfloat16()
outputs:
  sum: new(512, dtype=torch.bfloat16)
  product: new(512, dtype=torch.bfloat16)
  smallest: new(512, dtype=torch.bfloat16)
  rounded: new(512, dtype=torch.int32)
sizes: [512]
expected:
  sum: (a.double() + b.double()).bfloat16()
  product: (a.double() * b.double()).bfloat16()
  smallest: torch.minimum(a, b)
  rounded: (a.float() * 8).bfloat16().double().round().to(torch.int32)
*/
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void compute(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* sum, __nv_bfloat16* product,
                        __nv_bfloat16* smallest, int* rounded) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    sum[i] = __hadd(a[i], b[i]);
    product[i] = __hmul(a[i], b[i]);
    smallest[i] = __hmin(a[i], b[i]);
    rounded[i] = __bfloat162int_rn(__hmul(a[i], __float2bfloat16(8.0f)));
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    compute<<<4, 128>>>((const __nv_bfloat16*)in[0], (const __nv_bfloat16*)in[1], (__nv_bfloat16*)out[0], (__nv_bfloat16*)out[1],
                        (__nv_bfloat16*)out[2], (int*)out[3]);
}

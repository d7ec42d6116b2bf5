/*
summary: half intrinsics with one rounding each, bit for bit
inputs:
  a: normal(512).half()
  b: normal(512).half()
outputs:
  sum: new(512, dtype=torch.float16)
  product: new(512, dtype=torch.float16)
  fused: new(512, dtype=torch.float16)
  largest: new(512, dtype=torch.float16)
  flags: new(512, dtype=torch.int32)
sizes: [512]
expected:
  sum: (a.double() + b.double()).half()
  product: (a.double() * b.double()).half()
  fused: (a.double() * b.double() + a.double()).half()
  largest: torch.maximum(a, b)
  flags: (a < b).int() + 2 * (a.abs() >= b.abs()).int()
*/
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void compute(const __half* a, const __half* b, __half* sum, __half* product, __half* fused, __half* largest, int* flags) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const __half x = a[i], y = b[i];
    sum[i] = __hadd_rn(x, y);
    product[i] = __hmul_rn(x, y);
    fused[i] = __hfma(x, y, x);
    largest[i] = __hmax(x, y);
    flags[i] = (__hlt(x, y) ? 1 : 0) + (__hge(__habs(x), __habs(y)) ? 2 : 0);
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    compute<<<4, 128>>>((const __half*)in[0], (const __half*)in[1], (__half*)out[0], (__half*)out[1], (__half*)out[2],
                        (__half*)out[3], (int*)out[4]);
}

/*
summary: Recursive device function, local arrays indexed at run time
inputs:
  x: integers(0, 13, 64)
outputs:
  y: new(64, dtype=torch.int32)
  digits: new(64, dtype=torch.int32)
sizes: [64]
expected:
  y: torch.tensor([[0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144][v] for v in x.tolist()], dtype=torch.int32)
  digits: torch.tensor([int(f'{v * 37:05d}'[::-1]) for v in x.tolist()], dtype=torch.int32)
*/
#include <cuda_runtime.h>

__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__global__ void compute(const int* x, int* y, int* digits) {
    const int t = threadIdx.x;
    y[t] = fibonacci(x[t]);
    int d[5], v = x[t] * 37, reversed = 0;
    for (int i = 0; i < 5; ++i, v /= 10) d[i] = v % 10;
    for (int i = 0; i < 5; ++i) reversed = reversed * 10 + d[i];
    digits[t] = reversed;
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    compute<<<1, 64>>>((const int*)in[0], (int*)out[0], (int*)out[1]);
}

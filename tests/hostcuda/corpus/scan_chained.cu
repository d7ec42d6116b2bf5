/*
summary: Chained scan, each block waits for its predecessor's total (tickets, fences, a flag read until it is set)
inputs:
  x: integers(0, 10, 1024)
outputs:
  y: new(1024, dtype=torch.int32)
  totals: new(8, dtype=torch.int32)
  flags: zeros(8, dtype=torch.int32)
  ticket: zeros(1, dtype=torch.int32)
sizes: [1024]
expected:
  y: x.cumsum(0).to(torch.int32)
*/
#include <cuda_runtime.h>

__global__ void chained_scan(const int* x, int* y, int* totals, int* flags, int* ticket) {
    __shared__ int s[128];
    __shared__ int block, before;
    const int t = threadIdx.x;
    if (t == 0) block = atomicAdd(ticket, 1);
    __syncthreads();
    const int i = block * 128 + t;
    s[t] = x[i];
    __syncthreads();
    for (int d = 1; d < 128; d *= 2) {
        const int v = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    if (t == 0) {
        before = 0;
        if (block > 0) {
            while (atomicAdd(&flags[block - 1], 0) == 0) {
            }
            __threadfence();
            before = ((volatile int*)totals)[block - 1];
        }
        ((volatile int*)totals)[block] = before + s[127];
        __threadfence();
        atomicExch(&flags[block], 1);
    }
    __syncthreads();
    y[i] = before + s[t];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    chained_scan<<<8, 128>>>((const int*)in[0], (int*)out[0], (int*)out[1], (int*)out[2], (int*)out[3]);
}

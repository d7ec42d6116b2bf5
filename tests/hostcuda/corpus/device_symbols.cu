/*
summary: __device__ variables, a volatile one too, as counters, read back with cudaMemcpyFromSymbol
inputs:
  x: integers(-5, 6, 500)
outputs:
  counts: new(3, dtype=torch.int32)
sizes: [500]
expected:
  counts: torch.stack([(x > 0).sum(), (x < 0).sum(), torch.tensor(77)]).to(torch.int32)
*/
#include <cuda_runtime.h>

__device__ int positive;
__device__ int negative;
__device__ volatile int mark;

__global__ void reset() { positive = negative = 0, mark += 7; }
__global__ void count(const int* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (x[i] > 0) atomicAdd(&positive, 1);
    if (x[i] < 0) atomicAdd(&negative, 1);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int start = 70;
    cudaMemcpyToSymbol(mark, &start, sizeof(int));
    reset<<<1, 1>>>();
    count<<<4, 128>>>((const int*)in[0], (int)size[0]);
    int host[3];
    cudaMemcpyFromSymbol(&host[0], positive, sizeof(int));
    cudaMemcpyFromSymbol(&host[1], negative, sizeof(int));
    cudaMemcpyFromSymbol(&host[2], mark, sizeof(int));
    cudaMemcpy(out[0], host, sizeof(host), cudaMemcpyHostToDevice);
}

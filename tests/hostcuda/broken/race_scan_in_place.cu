/*
summary: Scan with one buffer and one barrier a step
twin: scan_double_buffer
inputs:
  x: integers(0, 10, 128)
outputs:
  y: new(128, dtype=torch.int32)
sizes: [128]
defect:
  status: data_race
  kernel: scan
  tool: racecheck
*/
#include <cuda_runtime.h>

__global__ void scan(const int* x, int* y, int n) {
    extern __shared__ int s[];
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int d = 1; d < n; d *= 2) {
        if (t >= d) s[t] += s[t - d];  // defect
        __syncthreads();
    }
    y[t] = s[t];
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0];
    scan<<<1, n, n * sizeof(int)>>>((const int*)in[0], (int*)out[0], n);
}

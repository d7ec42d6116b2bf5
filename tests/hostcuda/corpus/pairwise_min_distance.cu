/*
summary: Nearest neighbour, macros that expand to launches, default arguments, blocks of a size that is no power of two
inputs:
  a: normal(30, 3)
  b: normal(45, 3)
outputs:
  d: new(30)
  at: new(30, dtype=torch.int32)
sizes: [30, 45]
expected:
  d: torch.cdist(a.double(), b.double()).min(1).values
  at: torch.cdist(a.double(), b.double()).argmin(1).to(torch.int32)
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>
#define CUDA_1D_KERNEL_LOOP(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)
#define BLOCKS(n) (((n) + 23) / 24)
#define RUN(kernel, n, ...)                         \
    do {                                            \
        kernel<<<BLOCKS(n), 24>>>(n, __VA_ARGS__);  \
    } while (0)

__device__ inline float square(float v = 0.0f) { return v * v; }

__global__ void nearest(int count, const float3* a, const float3* b, float* d, int* at, int others) {
    CUDA_1D_KERNEL_LOOP(i, count) {
        float best = 3.0e38f;
        for (int j = 0; j < others; ++j) {
            const float s = square(a[i].x - b[j].x) + square(a[i].y - b[j].y) + square(a[i].z - b[j].z);
            if (s < best) {
                best = s;
                at[i] = j;
            }
        }
        d[i] = sqrtf(best);
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    RUN(nearest, (int)size[0], (const float3*)in[0], (const float3*)in[1], (float*)out[0], (int*)out[1], (int)size[1]);
}

/*
summary: Online softmax, running maximum and sum merged by shuffles, one row a warp
inputs:
  x: normal(10, 77) * 5
outputs:
  y: new(10, 77)
sizes: [10, 77]
expected:
  y: x.double().softmax(1)
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>
#include <math_constants.h>

struct Running {
    float largest, sum;
};

__device__ __forceinline__ Running merge(Running a, Running b) {
    const float m = max(a.largest, b.largest);
    if (m == -CUDART_INF_F) return {m, 0.0f};
    return {m, a.sum * expf(a.largest - m) + b.sum * expf(b.largest - m)};
}

__global__ void softmax(const float* x, float* y, int rows, int columns) {
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    Running r = {-CUDART_INF_F, 0.0f};
    for (int i = lane; i < columns; i += 32) r = merge(r, {x[row * columns + i], 1.0f});
    for (int d = 16; d > 0; d /= 2) {
        Running other;
        other.largest = __shfl_xor_sync(0xffffffff, r.largest, d);
        other.sum = __shfl_xor_sync(0xffffffff, r.sum, d);
        r = merge(r, other);
    }
    for (int i = lane; i < columns; i += 32) y[row * columns + i] = expf(x[row * columns + i] - r.largest) / r.sum;
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    softmax<<<3, 128>>>((const float*)in[0], (float*)out[0], (int)size[0], (int)size[1]);
}

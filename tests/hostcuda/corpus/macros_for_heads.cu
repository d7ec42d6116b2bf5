/*
summary: "kernels and shared arrays whose declarations are made by macros: heads, attributes, names, namespaces"
inputs:
  x: uniform(64)
outputs:
  y: zeros(64)
sizes: [64]
expected:
  y: x * 5
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>
#define PER_TYPE template <typename T, int N>
#define KERNEL_DEF(name) __global__ void name
#define CAT(a, b) a##b
#define BOUNDS(n) __launch_bounds__(n)
#define NS_BEGIN namespace inner {
#define NS_END }
#define ARGS const float* x, float* y
#define TILE(T, name, line) __shared__ T name[line], name##_other[line]
#define WAIT_FOR(flag) while (*(volatile int*)(flag) == 0)
#define SYNC __syncthreads()
#define LAUNCH(k, g, b, ...) k<<<g, b>>>(__VA_ARGS__)
#define GRID(n) ((n) + 63) / 64

PER_TYPE
__global__ void one(const T* x, T* y) {
    TILE(T, s, 64);
    TILE(T, t, 32);
    s[threadIdx.x] = x[threadIdx.x];
    t[threadIdx.x / 2] = t_other[threadIdx.x / 2] = 1;
    SYNC;
    y[threadIdx.x] += s[threadIdx.x] * N * t[threadIdx.x / 2];
}
KERNEL_DEF(two)(const float* x, float* y) {
    TILE(float, s, 64);
    s[63 - threadIdx.x] = s_other[threadIdx.x] = x[threadIdx.x];
    SYNC;
    y[threadIdx.x] += s[63 - threadIdx.x];
}
__global__ void CAT(thr, ee)(ARGS) {
    __shared__ float s[64];
    __shared__ int ready;
    if (threadIdx.x == 0) ready = 1;
    s[63 - threadIdx.x] = x[63 - threadIdx.x];
    SYNC;
    WAIT_FOR(&ready);
    y[threadIdx.x] += s[threadIdx.x];
}
NS_BEGIN
__global__ void BOUNDS(64) four(ARGS) {
    TILE(float, s, 64);
    s[63 - threadIdx.x] = x[threadIdx.x];
    SYNC;
    y[threadIdx.x] += s[63 - threadIdx.x];
}
NS_END
template <typename T> __global__ BOUNDS(64) void five(const T* x, T* y) {
    extern __shared__ char raw[];
    T* s = (T*)raw;
    s[63 - threadIdx.x] = x[threadIdx.x];
    SYNC;
    y[threadIdx.x] += s[63 - threadIdx.x];
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    const float* x = (const float*)in[0];
    float* y = (float*)out[0];
    one<float, 1><<<GRID(64), 64>>>(x, y);
    two<<<GRID(64), 64>>>(x, y);
    three<<<GRID(64), 64>>>(x, y);
    LAUNCH(inner::four, GRID(64), 64, x, y);
    five<float><<<1, 64, sizeof(float) * 64>>>(x, y);
}

/*
summary: "macros that stand for where things live and run, and how they are inlined"
inputs:
  x: uniform(256)
outputs:
  y: new(256)
  z: new(1)
sizes: [256]
expected:
  y: x * 3 + 2
  z: x.sum().view(1)
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>
#ifdef __CUDACC__
#define DEVICE_INLINE __device__ __forceinline__  // not for the host
#define HD __host__ __device__ inline
#else
#define DEVICE_INLINE
#define HD
#endif
#define KERNEL extern "C" __global__ void
#define SMEM __shared__
#define RESTRICT __restrict__
#define GLOBAL_STATE static __device__
#define TABLE __constant__
#define BARRIER __syncthreads()

DEVICE_INLINE float twice(float v) { return v + v; }
template <typename T> DEVICE_INLINE T reduce_block(T v) {
    SMEM T s[256], first;
    s[threadIdx.x] = v;
    BARRIER;
    for (int o = 128; o > 0; o >>= 1) {
        if (threadIdx.x < o) s[threadIdx.x] += s[threadIdx.x + o];
        BARRIER;
    }
    if (threadIdx.x == 0) first = s[0];
    BARRIER;
    return first;
}
HD constexpr int cdiv(int a, int b) { return (a + b - 1) / b; }
template <typename T, int N> __global__ void scale(const T* RESTRICT x, T* RESTRICT y, int n) {
    extern SMEM unsigned char raw[];
    T* s = reinterpret_cast<T*>(raw);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = x[i];
    BARRIER;
    y[i] = twice(s[255 - (255 - threadIdx.x)]) + s[threadIdx.x];
}
GLOBAL_STATE float g_offset = 2.0f;
TABLE float c_zero[4];
GLOBAL_STATE float g_total[4];
KERNEL offset(float* y, int n) {
    SMEM float t;
    if (threadIdx.x == 0) t = c_zero[0] + g_offset;
    BARRIER;
    if (threadIdx.x < n) y[threadIdx.x] += t;
}
KERNEL total(const float* x, float* z) {
    const float v = reduce_block(x[threadIdx.x]);
    if (threadIdx.x == 0) {
        g_total[1] = v;
        z[0] = g_total[1];
    }
}

extern "C" void run(const void* const* in, void* const* out, const long long* s) {
    const float zero[4] = {};
    cudaMemcpyToSymbol(c_zero, zero, sizeof(zero));
    scale<float, 4><<<cdiv(256, 256), 256, 256 * sizeof(float)>>>((const float*)in[0], (float*)out[0], 256);
    offset<<<1, 256>>>((float*)out[0], 256);
    total<<<1, 256>>>((const float*)in[0], (float*)out[1]);
}

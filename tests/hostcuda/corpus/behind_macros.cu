/*
summary: "launches in cases side by side, as arguments of a macro; declarations behind macros without a semicolon"
inputs:
  x: uniform(64)
outputs:
  y: new(64)
sizes: [64]
expected:
  y: x * 2 + 1
tolerance: 1.0e-6
*/
#include <cuda_runtime.h>
#include <cstdint>
#define UNROLL _Pragma("unroll")
#define UNROLL_N(n) _Pragma(#n)
#define DISPATCH(TYPE, ...) [&] { const int type_ = (TYPE); switch (type_) { __VA_ARGS__ default: break; } }()
#define DISPATCH_CASE(VALUE, TYPE, ...) case VALUE: { using scalar_t = TYPE; __VA_ARGS__(); break; }
#define INSTANTIATE(T, N) template __global__ void scale<T, N>(const T*, T*, int);
#define OP(name, expr) struct name { __device__ float operator()(float v) const { return expr; } };

struct Welford { float count; };
__device__ Welford combine(const Welford b, const Welford a) {
    auto count = a.count + b.count;
    if (count > decltype(b.count){0}) return {count};
    return {};
}
__device__ float3 g_part[64][4];

template <typename T, int N> __global__ void scale(const T* __restrict__ x, T* __restrict__ y, int n) {
    __shared__ T s[64];
    const int i = threadIdx.x;
    s[i] = x[i];
    __syncthreads();
    UNROLL for (int j = 0; j < 1; ++j) {
        __shared__ T t[64];
        t[i] = s[63 - i];
        __syncthreads();
        const Welford w = combine({t[63 - i]}, {s[i]});
        g_part[i][j] = make_float3(w.count, 0.0f, 0.0f);
        y[i] = g_part[i][j].x < decltype(w.count)(0) ? -1.0f : g_part[i][j].x;
    }
}
INSTANTIATE(float, 4)
__device__ float g_offset = 1.0f;
OP(Plus, v + g_offset)
OP(Same, v)
__constant__ float c_zero[4];
namespace inner {
OP(Twice, v * 2.0f)
__device__ int calls;
}

__global__ void offset(float* y, int n) {
    if (threadIdx.x == 0) atomicAdd(&inner::calls, 1);
    if (threadIdx.x < n) y[threadIdx.x] = Same{}(Plus()(y[threadIdx.x])) + c_zero[0];
}

extern "C" void run(const void* const* in, void* const* out, const long long* s) {
    const float zero[4] = {};
    cudaMemcpyToSymbol(c_zero, zero, sizeof(zero));
    for (int type = 0; type < 2; ++type) {
        DISPATCH(type,
            DISPATCH_CASE(0, float, [&] { scale<scalar_t, 4><<<1, 64>>>((const float*)in[0], (float*)out[0], 64); })
            DISPATCH_CASE(1, int, [&] { offset<<<1, sizeof(scalar_t) * 16>>>((float*)out[0], (int)s[0]); }))
    ;
    }
}

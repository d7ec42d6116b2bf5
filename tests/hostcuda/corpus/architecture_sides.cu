/*
summary: "__CUDA_ARCH__ is there for the device and not for the host"
inputs:
  x: normal(4)
outputs:
  y: new(4)
  z: new(4)
sizes: [4]
expected:
  y: torch.tensor([1.0, 11.0, 21.0, 31.0])
  z: torch.tensor([2.0, 12.0, 22.0, 0.0])
*/
#include <cuda_runtime.h>

__host__ __device__ constexpr int plain() {
#ifdef __CUDA_ARCH__
    return 1;
#else
    return 2;
#endif
}
template <class T> __host__ __device__ T typed(T v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    const T more = v + 1;
#else
    const T more = v + 2;
#endif
    return more;
}
struct Method {
    __host__ __device__ float get() const {
#ifndef __CUDA_ARCH__
        return 22;
#else
        return 21;
#endif
    }
};
__device__ float devices() {
#if __CUDA_ARCH__ >= 300
    return 31;
#else
    return 32;
#endif
}
static float hosts() {
#if __CUDA_ARCH__ >= 300
    return 1;
#else
    return 0;
#endif
}

__global__ void told(float* y) {
    y[0] = plain();
    y[1] = typed(10.0f);
    y[2] = Method().get();
    y[3] = devices();
}
__global__ void put(float* z, float4 v) { *reinterpret_cast<float4*>(z) = v; }

extern "C" void run(const void* const*, void* const* out, const long long*) {
    told<<<1, 1>>>((float*)out[0]);
    put<<<1, 1>>>((float*)out[1], make_float4(plain(), typed(10.0f), Method().get(), hosts()));
}

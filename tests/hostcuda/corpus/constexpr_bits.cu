/*
summary: "constexpr functions of the device that read a float's bits"
inputs:
  x: normal(64)
outputs:
  y: new(64)
  order: new(64, dtype=torch.int32)
sizes: [64]
expected:
  y: x
  order: (x < 0).int()
*/
#include <cuda_runtime.h>
#include <cstdint>

__host__ __device__ constexpr uint64_t packed(float v, uint32_t index) {
#ifdef __CUDA_ARCH__
    uint32_t bits = __float_as_uint(v);
#else
    uint32_t bits = 0;
#endif
    bits = (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
    return (static_cast<uint64_t>(bits) << 32) | static_cast<uint64_t>(~index);
}
struct Unpack {
    template <class T> __device__ constexpr float operator()(T word) const {
        const T bits = word >> 32;
        return __uint_as_float((bits & 0x80000000u) ? bits ^ 0x80000000u : ~bits);
    }
};

__global__ void keys(const float* x, float* y, int* order) {
    const int i = threadIdx.x;
    const uint64_t key = packed(x[i], i);
    y[i] = Unpack{}(key);
    order[i] = key < packed(0.0f, ~0u);
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    keys<<<1, 64>>>((const float*)in[0], (float*)out[0], (int*)out[1]);
}

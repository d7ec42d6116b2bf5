// gpuAtomicAdd, Mul, Max and Min for the types that torch has, and atomicAdd for those of them that CUDA leaves out. Here only, since sources
// that don't include this define some for themselves.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include <cmath>

#include "cuda.h"

namespace hostcuda {
template <class T> T larger(T a, T b) { return a > b || a != a ? a : b; }    // not a number, where one of them is that
template <class T> T smaller(T a, T b) { return a < b || a != a ? a : b; }
}  // namespace hostcuda

// Those of integers give nothing back, but for the sum of 32 bits.
#define HOSTCUDA_TORCH_ATOMIC(result, name, type, expression) \
    inline result name(type* p, type v) { return static_cast<result>(hostcuda::atomic_update(p, [v](type old) { return static_cast<type>(expression); })); }
#define HOSTCUDA_TORCH_ATOMIC_FLOATS(name, expression)               \
    HOSTCUDA_TORCH_ATOMIC(c10::Half, name, c10::Half, expression)     \
    HOSTCUDA_TORCH_ATOMIC(c10::BFloat16, name, c10::BFloat16, expression) \
    HOSTCUDA_TORCH_ATOMIC(float, name, float, expression)             \
    HOSTCUDA_TORCH_ATOMIC(double, name, double, expression)
#define HOSTCUDA_TORCH_ATOMIC_SMALL(name, expression)                 \
    HOSTCUDA_TORCH_ATOMIC(void, name, std::uint8_t, expression)       \
    HOSTCUDA_TORCH_ATOMIC(void, name, std::int8_t, expression)        \
    HOSTCUDA_TORCH_ATOMIC(void, name, std::int16_t, expression)       \
    HOSTCUDA_TORCH_ATOMIC(void, name, std::int64_t, expression)
HOSTCUDA_TORCH_ATOMIC(void, gpuAtomicAdd, bool, old || v)
HOSTCUDA_TORCH_ATOMIC(std::int32_t, gpuAtomicAdd, std::int32_t, old + v)
HOSTCUDA_TORCH_ATOMIC_SMALL(gpuAtomicAdd, old + v)
HOSTCUDA_TORCH_ATOMIC_FLOATS(gpuAtomicAdd, old + v)
HOSTCUDA_TORCH_ATOMIC_FLOATS(gpuAtomicMul, old * v)
HOSTCUDA_TORCH_ATOMIC(void, gpuAtomicMax, std::int32_t, hostcuda::larger(v, old))
HOSTCUDA_TORCH_ATOMIC_SMALL(gpuAtomicMax, hostcuda::larger(v, old))
HOSTCUDA_TORCH_ATOMIC_FLOATS(gpuAtomicMax, hostcuda::larger(v, old))
HOSTCUDA_TORCH_ATOMIC(void, gpuAtomicMin, std::int32_t, hostcuda::smaller(v, old))
HOSTCUDA_TORCH_ATOMIC_SMALL(gpuAtomicMin, hostcuda::smaller(v, old))
HOSTCUDA_TORCH_ATOMIC_FLOATS(gpuAtomicMin, hostcuda::smaller(v, old))
template <class T> inline void gpuAtomicAdd(c10::complex<T>* p, c10::complex<T> v) {
    gpuAtomicAdd(&p->real_, v.real_);
    gpuAtomicAdd(&p->imag_, v.imag_);
}

HOSTCUDA_TORCH_ATOMIC(void, atomicAdd, bool, old || v)
HOSTCUDA_TORCH_ATOMIC_SMALL(atomicAdd, old + v)
HOSTCUDA_TORCH_ATOMIC(c10::Half, atomicAdd, c10::Half, old + v)
HOSTCUDA_TORCH_ATOMIC(c10::BFloat16, atomicAdd, c10::BFloat16, old + v)

#define HOSTCUDA_TORCH_ATOMIC_SILENT(type) \
    inline void gpuAtomicAddNoReturn(type* p, type v) { gpuAtomicAdd(p, v); }
HOSTCUDA_TORCH_ATOMIC_SILENT(bool)
HOSTCUDA_TORCH_ATOMIC_SILENT(std::uint8_t)
HOSTCUDA_TORCH_ATOMIC_SILENT(std::int8_t)
HOSTCUDA_TORCH_ATOMIC_SILENT(std::int16_t)
HOSTCUDA_TORCH_ATOMIC_SILENT(std::int32_t)
HOSTCUDA_TORCH_ATOMIC_SILENT(std::int64_t)
HOSTCUDA_TORCH_ATOMIC_SILENT(c10::Half)
HOSTCUDA_TORCH_ATOMIC_SILENT(c10::BFloat16)
HOSTCUDA_TORCH_ATOMIC_SILENT(float)
HOSTCUDA_TORCH_ATOMIC_SILENT(double)
template <class T> inline void gpuAtomicAddNoReturn(c10::complex<T>* p, c10::complex<T> v) { gpuAtomicAdd(p, v); }
#undef HOSTCUDA_TORCH_ATOMIC_SILENT
#undef HOSTCUDA_TORCH_ATOMIC_SMALL
#undef HOSTCUDA_TORCH_ATOMIC_FLOATS
#undef HOSTCUDA_TORCH_ATOMIC

// CUDA's half precision for the host device: __half and __half2 as storage (2 and 4 bytes, IEEE binary16), with the
// conversions and the arithmetic of hostcuda/half_common.inc. The switches that torch sets for its extensions
// (__CUDA_NO_HALF_OPERATORS__, __CUDA_NO_HALF_CONVERSIONS__, __CUDA_NO_HALF2_OPERATORS__) do here what they do there, so that a
// source that would not compile for a GPU does not compile here either.
// Pure; atomics and shuffles on these types belong to the thread headers.
#ifndef HOSTCUDA_CUDA_FP16_H
#define HOSTCUDA_CUDA_FP16_H

#include <type_traits>

#include "hostcuda/float_bits.h"
#include "vector_functions.h"
#include "vector_types.h"

struct __nv_bfloat16;
struct alignas(2) __half_raw { unsigned short x; };
struct alignas(4) __half2_raw { unsigned short x, y; };

namespace hostcuda {
// Recognises torch's c10::Half (11 significant bits) and c10::BFloat16 (8) without including torch: on a GPU those convert
// from and to CUDA's types.
template <class T, int Digits, class = void> struct IsTorchScalar : std::false_type {};
template <class T, int Digits>
struct IsTorchScalar<T, Digits, std::void_t<typename T::from_bits_t, decltype(T::x)>>
    : std::bool_constant<std::numeric_limits<T>::digits == Digits> {};
template <class To> To narrow(float value);
template <class To> To narrow(double value);
}  // namespace hostcuda

#define HC_T __half
#define HC_T2 __half2
#define HC_RAW __half_raw
#define HC_RAW2 __half2_raw
#define HC_OTHER __nv_bfloat16
#define HC_NAME half
#define HC_DIGITS 11
#define HC_EXPLICIT
#define HC_TO_FLOAT half_to_float
#define HC_OF_FLOAT float_to_half
#define HC_OF_DOUBLE double_to_half
#if defined(__CUDA_NO_HALF_CONVERSIONS__)
#define HC_CONVERSIONS 0
#else
#define HC_CONVERSIONS 1
#endif
#if defined(__CUDA_NO_HALF_OPERATORS__)
#define HC_SCALAR_OPERATORS 0
#else
#define HC_SCALAR_OPERATORS 1
#endif
#if defined(__CUDA_NO_HALF2_OPERATORS__)
#define HC_PAIR_OPERATORS 0
#else
#define HC_PAIR_OPERATORS 1
#endif
#include "hostcuda/half_common.inc"

using half = __half;
using half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;
using __nv_half = __half;
using __nv_half2 = __half2;
using __nv_half_raw = __half_raw;
using __nv_half2_raw = __half2_raw;
inline __half2 make_half2(__half x, __half y) { return __half2(x, y); }
inline __half2 __half2half2(__half x) { return __half2(x, x); }

#define CUDART_INF_FP16 __ushort_as_half(static_cast<unsigned short>(0x7c00u))
#define CUDART_NAN_FP16 __ushort_as_half(static_cast<unsigned short>(0x7fffu))
#define CUDART_MIN_DENORM_FP16 __ushort_as_half(static_cast<unsigned short>(0x0001u))
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(static_cast<unsigned short>(0x7bffu))
#define CUDART_NEG_ZERO_FP16 __ushort_as_half(static_cast<unsigned short>(0x8000u))
#define CUDART_ZERO_FP16 __ushort_as_half(static_cast<unsigned short>(0x0000u))
#define CUDART_ONE_FP16 __ushort_as_half(static_cast<unsigned short>(0x3c00u))

// Bits of a variable as CUDA's own header names them; authors hand these to inline assembly.
#define __HALF_TO_US(variable) *(reinterpret_cast<unsigned short*>(&(variable)))
#define __HALF_TO_CUS(variable) *(reinterpret_cast<const unsigned short*>(&(variable)))
#define __HALF2_TO_UI(variable) *(reinterpret_cast<unsigned*>(&(variable)))
#define __HALF2_TO_CUI(variable) *(reinterpret_cast<const unsigned*>(&(variable)))

#endif

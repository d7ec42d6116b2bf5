// CUDA's bfloat16 for the host device; the same construction as cuda_fp16.h, for the type with a float's exponent and eight
// significant bits. Honours __CUDA_NO_BFLOAT16_CONVERSIONS__, __CUDA_NO_BFLOAT16_OPERATORS__ and __CUDA_NO_BFLOAT162_OPERATORS__.
// Pure.
#ifndef HOSTCUDA_CUDA_BF16_H
#define HOSTCUDA_CUDA_BF16_H

#include "cuda_fp16.h"

struct alignas(2) __nv_bfloat16_raw { unsigned short x; };
struct alignas(4) __nv_bfloat162_raw { unsigned short x, y; };

#define HC_T __nv_bfloat16
#define HC_T2 __nv_bfloat162
#define HC_RAW __nv_bfloat16_raw
#define HC_RAW2 __nv_bfloat162_raw
#define HC_OTHER __half
#define HC_NAME bfloat16
#define HC_DIGITS 8
#define HC_EXPLICIT explicit  // as torch's own conversion: otherwise two of torch's values compare by this type's operators
#define HC_TO_FLOAT bfloat16_to_float
#define HC_OF_FLOAT float_to_bfloat16
#define HC_OF_DOUBLE double_to_bfloat16
#if defined(__CUDA_NO_BFLOAT16_CONVERSIONS__)
#define HC_CONVERSIONS 0
#else
#define HC_CONVERSIONS 1
#endif
#if defined(__CUDA_NO_BFLOAT16_OPERATORS__)
#define HC_SCALAR_OPERATORS 0
#else
#define HC_SCALAR_OPERATORS 1
#endif
#if defined(__CUDA_NO_BFLOAT162_OPERATORS__)
#define HC_PAIR_OPERATORS 0
#else
#define HC_PAIR_OPERATORS 1
#endif
#include "hostcuda/half_common.inc"

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return __nv_bfloat162(x, y); }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return __nv_bfloat162(x, x); }

#define CUDART_INF_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x7f80u))
#define CUDART_NAN_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x7fffu))
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x0001u))
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x7f7fu))
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x8000u))
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x0000u))
#define CUDART_ONE_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x3f80u))

// Bits of a variable as CUDA's own header names them; authors hand these to inline assembly.
#define __BFLOAT16_TO_US(variable) *(reinterpret_cast<unsigned short*>(&(variable)))
#define __BFLOAT16_TO_CUS(variable) *(reinterpret_cast<const unsigned short*>(&(variable)))
#define __BFLOAT162_TO_UI(variable) *(reinterpret_cast<unsigned*>(&(variable)))
#define __BFLOAT162_TO_CUI(variable) *(reinterpret_cast<const unsigned*>(&(variable)))

#if !defined(__CUDA_NO_HALF_CONVERSIONS__)
inline __half::__half(__nv_bfloat16 value) : __x(hostcuda::float_to_half(hostcuda::widen(value))) {}
#endif
#if !defined(__CUDA_NO_BFLOAT16_CONVERSIONS__)
inline __nv_bfloat16::__nv_bfloat16(__half value) : __x(hostcuda::float_to_bfloat16(hostcuda::widen(value))) {}
#endif

#endif

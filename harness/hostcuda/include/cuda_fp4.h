// CUDA's 4-bit floating-point type for the host device: E2M1 (0, 0.5, 1, 1.5, 2, 3, 4 and 6 by rising code, sign in bit 3; no
// NaN, no infinity), as storage with explicit conversions; like CUDA, no arithmetic. Two numbers share a byte, the first in
// its low four bits. Larger values saturate, NaN becomes 6 (CUDA Math API). Pure.
#ifndef HOSTCUDA_CUDA_FP4_H
#define HOSTCUDA_CUDA_FP4_H

#include "cuda_fp8.h"

using __nv_fp4_storage_t = unsigned char;
using __nv_fp4x2_storage_t = unsigned char;
using __nv_fp4x4_storage_t = unsigned short;
enum __nv_fp4_interpretation_t { __NV_E2M1 };

namespace hostcuda {
inline float fp4_to_float(unsigned code) {
    const float numbers[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    return (code & 8u) ? -numbers[code & 7u] : numbers[code & 7u];
}
// The number before rounding up must be exceeded by more than half the step, or by half of it if its code is odd.
inline __nv_fp4_storage_t float_to_fp4(double x, cudaRoundMode round) {
    if (std::isnan(x)) {
        return 7;
    }
    const unsigned sign = std::signbit(x) ? 8u : 0u;
    const double size = std::fabs(x);
    unsigned code = 0;
    while (code < 7) {
        const double low = fp4_to_float(code), high = fp4_to_float(code + 1);
        const double middle = 0.5 * (low + high);
        bool beyond = size > middle || (size == middle && (code & 1u));
        if (round == cudaRoundZero || (round == cudaRoundPosInf && sign) || (round == cudaRoundMinInf && !sign)) {
            beyond = size >= high;
        } else if (round == cudaRoundPosInf || round == cudaRoundMinInf) {
            beyond = size > low;
        }
        if (!beyond) {
            break;
        }
        ++code;
    }
    return static_cast<__nv_fp4_storage_t>(sign | code);
}
}  // namespace hostcuda

inline __nv_fp4_storage_t __nv_cvt_double_to_fp4(double x, __nv_fp4_interpretation_t, cudaRoundMode round) {
    return hostcuda::float_to_fp4(x, round);
}
inline __nv_fp4_storage_t __nv_cvt_float_to_fp4(float x, __nv_fp4_interpretation_t, cudaRoundMode round) {
    return hostcuda::float_to_fp4(x, round);
}
inline __nv_fp4_storage_t __nv_cvt_halfraw_to_fp4(__half_raw x, __nv_fp4_interpretation_t, cudaRoundMode round) {
    return hostcuda::float_to_fp4(hostcuda::half_to_float(x.x), round);
}
inline __nv_fp4_storage_t __nv_cvt_bfloat16raw_to_fp4(__nv_bfloat16_raw x, __nv_fp4_interpretation_t, cudaRoundMode round) {
    return hostcuda::float_to_fp4(hostcuda::bfloat16_to_float(x.x), round);
}
inline __nv_fp4x2_storage_t __nv_cvt_double2_to_fp4x2(double2 x, __nv_fp4_interpretation_t, cudaRoundMode round) {
    return static_cast<__nv_fp4x2_storage_t>(hostcuda::float_to_fp4(x.x, round) | (hostcuda::float_to_fp4(x.y, round) << 4));
}
inline __nv_fp4x2_storage_t __nv_cvt_float2_to_fp4x2(float2 x, __nv_fp4_interpretation_t kind, cudaRoundMode round) {
    return __nv_cvt_double2_to_fp4x2(make_double2(x.x, x.y), kind, round);
}
inline __nv_fp4x2_storage_t __nv_cvt_halfraw2_to_fp4x2(__half2_raw x, __nv_fp4_interpretation_t kind, cudaRoundMode round) {
    return __nv_cvt_double2_to_fp4x2(make_double2(hostcuda::half_to_float(x.x), hostcuda::half_to_float(x.y)), kind, round);
}
inline __nv_fp4x2_storage_t __nv_cvt_bfloat16raw2_to_fp4x2(__nv_bfloat162_raw x, __nv_fp4_interpretation_t kind,
                                                           cudaRoundMode round) {
    return __nv_cvt_double2_to_fp4x2(make_double2(hostcuda::bfloat16_to_float(x.x), hostcuda::bfloat16_to_float(x.y)), kind,
                                     round);
}
inline __half_raw __nv_cvt_fp4_to_halfraw(__nv_fp4_storage_t x, __nv_fp4_interpretation_t) {
    return __half_raw{hostcuda::float_to_half(hostcuda::fp4_to_float(x))};
}
inline __half2_raw __nv_cvt_fp4x2_to_halfraw2(__nv_fp4x2_storage_t x, __nv_fp4_interpretation_t) {
    return __half2_raw{hostcuda::float_to_half(hostcuda::fp4_to_float(x & 15u)),
                       hostcuda::float_to_half(hostcuda::fp4_to_float(x >> 4))};
}

struct __nv_fp4_e2m1 {
    __nv_fp4_storage_t __x;
    __nv_fp4_e2m1() = default;
    explicit __nv_fp4_e2m1(__half value) : __x(__nv_cvt_halfraw_to_fp4(value, __NV_E2M1, cudaRoundNearest)) {}
    explicit __nv_fp4_e2m1(__nv_bfloat16 value) : __x(__nv_cvt_bfloat16raw_to_fp4(value, __NV_E2M1, cudaRoundNearest)) {}
    explicit __nv_fp4_e2m1(float value) : __x(__nv_cvt_float_to_fp4(value, __NV_E2M1, cudaRoundNearest)) {}
    explicit __nv_fp4_e2m1(double value) : __x(__nv_cvt_double_to_fp4(value, __NV_E2M1, cudaRoundNearest)) {}
    explicit __nv_fp4_e2m1(int value) : __nv_fp4_e2m1(static_cast<double>(value)) {}
    explicit operator __half() const { return __half(__nv_cvt_fp4_to_halfraw(__x, __NV_E2M1)); }
    explicit operator __nv_bfloat16() const { return __float2bfloat16(hostcuda::fp4_to_float(__x)); }
    explicit operator float() const { return hostcuda::fp4_to_float(__x); }
    explicit operator double() const { return hostcuda::fp4_to_float(__x); }
    explicit operator bool() const { return (__x & 7u) != 0; }
};

struct __nv_fp4x2_e2m1 {
    __nv_fp4x2_storage_t __x;
    __nv_fp4x2_e2m1() = default;
    explicit __nv_fp4x2_e2m1(__half2 value) : __x(__nv_cvt_halfraw2_to_fp4x2(value, __NV_E2M1, cudaRoundNearest)) {}
    explicit __nv_fp4x2_e2m1(__nv_bfloat162 value)
        : __x(__nv_cvt_bfloat16raw2_to_fp4x2(value, __NV_E2M1, cudaRoundNearest)) {}
    explicit __nv_fp4x2_e2m1(float2 value) : __x(__nv_cvt_float2_to_fp4x2(value, __NV_E2M1, cudaRoundNearest)) {}
    explicit __nv_fp4x2_e2m1(double2 value) : __x(__nv_cvt_double2_to_fp4x2(value, __NV_E2M1, cudaRoundNearest)) {}
    explicit operator __half2() const { return __half2(__nv_cvt_fp4x2_to_halfraw2(__x, __NV_E2M1)); }
    explicit operator float2() const {
        return make_float2(hostcuda::fp4_to_float(__x & 15u), hostcuda::fp4_to_float(__x >> 4));
    }
};

struct alignas(2) __nv_fp4x4_e2m1 {
    __nv_fp4x4_storage_t __x;
    __nv_fp4x4_e2m1() = default;
    explicit __nv_fp4x4_e2m1(float4 value)
        : __x(joined(__nv_fp4x2_e2m1(make_float2(value.x, value.y)), __nv_fp4x2_e2m1(make_float2(value.z, value.w)))) {}
    explicit __nv_fp4x4_e2m1(double4 value)
        : __x(joined(__nv_fp4x2_e2m1(make_double2(value.x, value.y)), __nv_fp4x2_e2m1(make_double2(value.z, value.w)))) {}
    explicit __nv_fp4x4_e2m1(__half2 low, __half2 high) : __x(joined(__nv_fp4x2_e2m1(low), __nv_fp4x2_e2m1(high))) {}
    explicit __nv_fp4x4_e2m1(__nv_bfloat162 low, __nv_bfloat162 high)
        : __x(joined(__nv_fp4x2_e2m1(low), __nv_fp4x2_e2m1(high))) {}
    explicit operator float4() const {
        return make_float4(hostcuda::fp4_to_float(__x & 15u), hostcuda::fp4_to_float((__x >> 4) & 15u),
                           hostcuda::fp4_to_float((__x >> 8) & 15u), hostcuda::fp4_to_float(__x >> 12));
    }

private:
    static __nv_fp4x4_storage_t joined(__nv_fp4x2_e2m1 low, __nv_fp4x2_e2m1 high) {
        return static_cast<__nv_fp4x4_storage_t>(low.__x | (high.__x << 8));
    }
};

#endif

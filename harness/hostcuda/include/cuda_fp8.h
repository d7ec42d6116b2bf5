// CUDA's 8-bit floating-point types for the host device: E4M3 (one NaN pattern, no infinity, largest 448) and E5M2 (IEEE-like,
// largest 57344), as storage with explicit conversions; like CUDA, no arithmetic. Conversions round once, to nearest even
// ("FP8 Formats for Deep Learning", Micikevicius et al., 2022; CUDA Math API). Pure.
#ifndef HOSTCUDA_CUDA_FP8_H
#define HOSTCUDA_CUDA_FP8_H

#include "cuda_bf16.h"
#include "cuda_fp16.h"

using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned int;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    using namespace hostcuda;
    const Overflow overflow = saturate == __NV_SATFINITE ? Overflow::saturate : Overflow::infinity;
    return static_cast<__nv_fp8_storage_t>(kind == __NV_E4M3 ? encode<4, 3, true>(x, Round::nearest, 0x7fu, overflow)
                                                             : encode<5, 2>(x, Round::nearest, 0x7fu, overflow));
}
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    return __nv_cvt_double_to_fp8(x, saturate, kind);
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    return __nv_cvt_double_to_fp8(hostcuda::half_to_float(x.x), saturate, kind);
}
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t saturate,
                                                      __nv_fp8_interpretation_t kind) {
    return __nv_cvt_double_to_fp8(hostcuda::bfloat16_to_float(x.x), saturate, kind);
}
inline __nv_fp8x2_storage_t __nv_cvt_double2_to_fp8x2(double2 x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_double_to_fp8(x.x, saturate, kind) |
                                             (__nv_cvt_double_to_fp8(x.y, saturate, kind) << 8));
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    return __nv_cvt_double2_to_fp8x2(make_double2(x.x, x.y), saturate, kind);
}
inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw x, __nv_saturation_t saturate,
                                                       __nv_fp8_interpretation_t kind) {
    return __nv_cvt_double2_to_fp8x2(make_double2(hostcuda::half_to_float(x.x), hostcuda::half_to_float(x.y)), saturate, kind);
}
inline __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw x, __nv_saturation_t saturate,
                                                           __nv_fp8_interpretation_t kind) {
    return __nv_cvt_double2_to_fp8x2(make_double2(hostcuda::bfloat16_to_float(x.x), hostcuda::bfloat16_to_float(x.y)),
                                     saturate, kind);
}

namespace hostcuda {
// Every FP8 value is a half: E5M2 is a half's upper byte; E4M3 has the same mantissa width after a shift, its exponent 8 lower.
inline std::uint16_t fp8_to_half(std::uint8_t code, __nv_fp8_interpretation_t kind) {
    if (kind == __NV_E5M2) {
        return (code & 0x7fu) > 0x7cu ? 0x7fffu : static_cast<std::uint16_t>(code << 8);
    }
    if ((code & 0x7fu) == 0x7fu) {
        return 0x7fffu;
    }
    const std::uint16_t magnitude = static_cast<std::uint16_t>((code & 0x7fu) << 7);
    return static_cast<std::uint16_t>(float_to_half(half_to_float(magnitude) * 256.0f) | ((code & 0x80u) << 8));
}
inline float fp8_to_float(std::uint8_t code, __nv_fp8_interpretation_t kind) { return half_to_float(fp8_to_half(code, kind)); }
}  // namespace hostcuda

inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
    return __half_raw{hostcuda::fp8_to_half(x, kind)};
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t kind) {
    return __half2_raw{hostcuda::fp8_to_half(static_cast<std::uint8_t>(x & 0xffu), kind),
                       hostcuda::fp8_to_half(static_cast<std::uint8_t>(x >> 8), kind)};
}

#define HC_FP8(name, name2, name4, kind)                                                                                   \
    struct alignas(1) name {                                                                                               \
        __nv_fp8_storage_t __x;                                                                                            \
        name() = default;                                                                                                  \
        explicit name(__half value) : __x(__nv_cvt_halfraw_to_fp8(value, __NV_SATFINITE, kind)) {}                         \
        explicit name(__nv_bfloat16 value) : __x(__nv_cvt_bfloat16raw_to_fp8(value, __NV_SATFINITE, kind)) {}              \
        explicit name(float value) : __x(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, kind)) {}                            \
        explicit name(double value) : __x(__nv_cvt_double_to_fp8(value, __NV_SATFINITE, kind)) {}                          \
        explicit name(short value) : name(static_cast<double>(value)) {}                                                   \
        explicit name(unsigned short value) : name(static_cast<double>(value)) {}                                          \
        explicit name(int value) : name(static_cast<double>(value)) {}                                                     \
        explicit name(unsigned value) : name(static_cast<double>(value)) {}                                                \
        explicit name(long value) : name(hostcuda::odd_double(static_cast<long long>(value))) {}                           \
        explicit name(unsigned long value) : name(hostcuda::odd_double(static_cast<unsigned long long>(value))) {}         \
        explicit name(long long value) : name(hostcuda::odd_double(value)) {}                                              \
        explicit name(unsigned long long value) : name(hostcuda::odd_double(value)) {}                                     \
        explicit operator __half() const { return __half(__nv_cvt_fp8_to_halfraw(__x, kind)); }                            \
        explicit operator __nv_bfloat16() const { return __float2bfloat16(widened()); }                                    \
        explicit operator float() const { return widened(); }                                                              \
        explicit operator double() const { return widened(); }                                                             \
        explicit operator signed char() const { return to<signed char>(); }                                                \
        explicit operator unsigned char() const { return to<unsigned char>(); }                                            \
        explicit operator char() const { return to<char>(); }                                                              \
        explicit operator short() const { return to<short>(); }                                                            \
        explicit operator unsigned short() const { return to<unsigned short>(); }                                          \
        explicit operator int() const { return to<int>(); }                                                                \
        explicit operator unsigned() const { return to<unsigned>(); }                                                      \
        explicit operator long() const { return to<long>(); }                                                              \
        explicit operator unsigned long() const { return to<unsigned long>(); }                                            \
        explicit operator long long() const { return to<long long>(); }                                                    \
        explicit operator unsigned long long() const { return to<unsigned long long>(); }                                  \
        explicit operator bool() const { return (__x & 0x7fu) != 0; }                                                      \
                                                                                                                           \
    private:                                                                                                               \
        float widened() const { return hostcuda::fp8_to_float(__x, kind); }                                                \
        template <class To> To to() const { return hostcuda::to_integer<To, hostcuda::Round::zero>(widened()); }           \
    };                                                                                                                     \
    struct alignas(2) name2 {                                                                                              \
        __nv_fp8x2_storage_t __x;                                                                                          \
        name2() = default;                                                                                                 \
        explicit name2(__half2 value) : __x(__nv_cvt_halfraw2_to_fp8x2(value, __NV_SATFINITE, kind)) {}                    \
        explicit name2(__nv_bfloat162 value) : __x(__nv_cvt_bfloat16raw2_to_fp8x2(value, __NV_SATFINITE, kind)) {}         \
        explicit name2(float2 value) : __x(__nv_cvt_float2_to_fp8x2(value, __NV_SATFINITE, kind)) {}                       \
        explicit name2(double2 value) : __x(__nv_cvt_double2_to_fp8x2(value, __NV_SATFINITE, kind)) {}                     \
        explicit operator __half2() const { return __half2(__nv_cvt_fp8x2_to_halfraw2(__x, kind)); }                       \
        explicit operator float2() const {                                                                                 \
            return make_float2(hostcuda::fp8_to_float(static_cast<std::uint8_t>(__x & 0xffu), kind),                       \
                               hostcuda::fp8_to_float(static_cast<std::uint8_t>(__x >> 8), kind));                         \
        }                                                                                                                  \
    };                                                                                                                     \
    struct alignas(4) name4 {                                                                                              \
        __nv_fp8x4_storage_t __x;                                                                                          \
        name4() = default;                                                                                                 \
        explicit name4(float4 value) : __x(joined(name2(make_float2(value.x, value.y)), name2(make_float2(value.z, value.w)))) {} \
        explicit name4(double4 value)                                                                                      \
            : __x(joined(name2(make_double2(value.x, value.y)), name2(make_double2(value.z, value.w)))) {}                 \
        explicit name4(__half2 low, __half2 high) : __x(joined(name2(low), name2(high))) {}                                \
        explicit name4(__nv_bfloat162 low, __nv_bfloat162 high) : __x(joined(name2(low), name2(high))) {}                  \
        explicit operator float4() const {                                                                                 \
            return make_float4(element(0), element(8), element(16), element(24));                                          \
        }                                                                                                                  \
                                                                                                                           \
    private:                                                                                                               \
        static __nv_fp8x4_storage_t joined(name2 low, name2 high) {                                                        \
            return static_cast<__nv_fp8x4_storage_t>(low.__x) | (static_cast<__nv_fp8x4_storage_t>(high.__x) << 16);       \
        }                                                                                                                  \
        float element(int shift) const { return hostcuda::fp8_to_float(static_cast<std::uint8_t>((__x >> shift) & 0xffu), kind); } \
    };
HC_FP8(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3, __NV_E4M3)
HC_FP8(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2, __NV_E5M2)
#undef HC_FP8

// E8M0, the scale of the MX formats: a power of two as its exponent plus 127; 255 is NaN. The sign is ignored.
inline __nv_fp8_storage_t __nv_cvt_float_to_e8m0(float x, __nv_saturation_t saturate, cudaRoundMode round) {
    if (std::isnan(x)) {
        return 255;
    }
    const std::uint32_t bits = hostcuda::bits_of(x) & 0x7fffffffu;
    std::uint32_t exponent = bits >> 23;
    const std::uint32_t rest = bits & 0x7fffffu;
    // Below 2^-126 the exponent is -127, whose number is the subnormal 0x400000.
    const bool inexact = exponent == 0 ? rest > 0x400000u : rest != 0;
    exponent += round == cudaRoundPosInf && inexact ? 1u : 0u;
    return static_cast<__nv_fp8_storage_t>(exponent >= 255u && saturate == __NV_SATFINITE ? 254u : exponent);
}
inline __nv_bfloat16_raw __nv_cvt_e8m0_to_bf16raw(__nv_fp8_storage_t x) {
    const std::uint16_t bits = x == 255 ? 0x7fffu : x == 0 ? 0x0040u : static_cast<std::uint16_t>(x << 7);
    return __nv_bfloat16_raw{bits};
}
struct __nv_fp8_e8m0 {
    __nv_fp8_storage_t __x;
    __nv_fp8_e8m0() = default;
    explicit __nv_fp8_e8m0(float value) : __x(__nv_cvt_float_to_e8m0(value, __NV_SATFINITE, cudaRoundPosInf)) {}
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(__nv_cvt_e8m0_to_bf16raw(__x)); }
    explicit operator float() const { return hostcuda::bfloat16_to_float(__nv_cvt_e8m0_to_bf16raw(__x).x); }
};

#endif

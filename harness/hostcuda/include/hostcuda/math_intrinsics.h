// Device math for the host device: the functions and intrinsics of the CUDA Math API that a C++ library does not have, or
// has with other rules. Pure: standard headers and vector types only; loads and stores with cache hints are plain
// loads and stores, so that checked mode sees them.
//
// Accuracy: the fast intrinsics (__expf and kin) are computed to full float precision, which lies inside what CUDA promises for
// them; where CUDA documents a special case (__fdividef with a huge divisor, __powf of a negative base), it is reproduced.
#ifndef HOSTCUDA_MATH_INTRINSICS_H
#define HOSTCUDA_MATH_INTRINSICS_H

#include <math.h>
#include <stdlib.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "hostcuda/float_bits.h"
#include "vector_functions.h"
#include "vector_types.h"

// ---- bit casts
constexpr int __float_as_int(float x) { return hostcuda::bits_cast<int>(x); }
constexpr unsigned __float_as_uint(float x) { return hostcuda::bits_cast<unsigned>(x); }
constexpr float __int_as_float(int x) { return hostcuda::bits_cast<float>(x); }
constexpr float __uint_as_float(unsigned x) { return hostcuda::bits_cast<float>(x); }
constexpr long long __double_as_longlong(double x) { return hostcuda::bits_cast<long long>(x); }
constexpr double __longlong_as_double(long long x) { return hostcuda::bits_cast<double>(x); }
constexpr int __double2hiint(double x) { return static_cast<int>(hostcuda::bits_of(x) >> 32); }
constexpr int __double2loint(double x) { return static_cast<int>(hostcuda::bits_of(x)); }
constexpr double __hiloint2double(int high, int low) {
    return hostcuda::double_of_bits((static_cast<std::uint64_t>(static_cast<unsigned>(high)) << 32) | static_cast<unsigned>(low));
}

// ---- arithmetic with a named rounding; never fused with a neighbour
#define HC_ROUNDINGS(M) M(rn, nearest) M(rz, zero) M(ru, up) M(rd, down)
#define HC_ARITHMETIC(suffix, mode)                                                                                         \
    inline float __fadd_##suffix(float a, float b) {                                                                        \
        return hostcuda::rounded<hostcuda::Round::mode>([](float x, float y, float) { return x + y; }, a, b);               \
    }                                                                                                                       \
    inline float __fsub_##suffix(float a, float b) {                                                                        \
        return hostcuda::rounded<hostcuda::Round::mode>([](float x, float y, float) { return x - y; }, a, b);               \
    }                                                                                                                       \
    inline float __fmul_##suffix(float a, float b) {                                                                        \
        return hostcuda::rounded<hostcuda::Round::mode>([](float x, float y, float) { return x * y; }, a, b);               \
    }                                                                                                                       \
    inline float __fdiv_##suffix(float a, float b) {                                                                        \
        return hostcuda::rounded<hostcuda::Round::mode>([](float x, float y, float) { return x / y; }, a, b);               \
    }                                                                                                                       \
    inline float __frcp_##suffix(float a) {                                                                                 \
        return hostcuda::rounded<hostcuda::Round::mode>([](float x, float, float) { return 1.0f / x; }, a);                 \
    }                                                                                                                       \
    inline float __fsqrt_##suffix(float a) {                                                                                \
        return hostcuda::rounded<hostcuda::Round::mode>([](float x, float, float) { return __builtin_sqrtf(x); }, a);       \
    }                                                                                                                       \
    inline float __fmaf_##suffix(float a, float b, float c) {                                                               \
        return hostcuda::rounded<hostcuda::Round::mode>([](float x, float y, float z) { return __builtin_fmaf(x, y, z); },  \
                                                        a, b, c);                                                           \
    }                                                                                                                       \
    inline float __fmaf_ieee_##suffix(float a, float b, float c) { return __fmaf_##suffix(a, b, c); }                       \
    inline double __dadd_##suffix(double a, double b) {                                                                     \
        return hostcuda::rounded<hostcuda::Round::mode>([](double x, double y, double) { return x + y; }, a, b);            \
    }                                                                                                                       \
    inline double __dsub_##suffix(double a, double b) {                                                                     \
        return hostcuda::rounded<hostcuda::Round::mode>([](double x, double y, double) { return x - y; }, a, b);            \
    }                                                                                                                       \
    inline double __dmul_##suffix(double a, double b) {                                                                     \
        return hostcuda::rounded<hostcuda::Round::mode>([](double x, double y, double) { return x * y; }, a, b);            \
    }                                                                                                                       \
    inline double __ddiv_##suffix(double a, double b) {                                                                     \
        return hostcuda::rounded<hostcuda::Round::mode>([](double x, double y, double) { return x / y; }, a, b);            \
    }                                                                                                                       \
    inline double __drcp_##suffix(double a) {                                                                               \
        return hostcuda::rounded<hostcuda::Round::mode>([](double x, double, double) { return 1.0 / x; }, a);               \
    }                                                                                                                       \
    inline double __dsqrt_##suffix(double a) {                                                                              \
        return hostcuda::rounded<hostcuda::Round::mode>([](double x, double, double) { return __builtin_sqrt(x); }, a);     \
    }                                                                                                                       \
    inline double __fma_##suffix(double a, double b, double c) {                                                            \
        return hostcuda::rounded<hostcuda::Round::mode>([](double x, double y, double z) { return __builtin_fma(x, y, z); },\
                                                        a, b, c);                                                           \
    }
HC_ROUNDINGS(HC_ARITHMETIC)
#undef HC_ARITHMETIC
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }

// ---- conversions with a named rounding; to integers they saturate
namespace hostcuda {
template <Round R, class From> inline float float_from(From value) {
    if (R == Round::nearest) {
        return static_cast<float>(value);
    }
    double exact = 0;
    if constexpr (sizeof(From) == 8 && std::numeric_limits<From>::is_integer) {
        exact = odd_double(value);
    } else {
        exact = static_cast<double>(value);
    }
    float result = static_cast<float>(exact);  // to nearest, then one step back where that went the wrong way
    if (exact != exact || static_cast<double>(result) == exact) {
        return result;
    }
    const bool above = static_cast<double>(result) > exact;
    if (R == Round::up || (R == Round::zero && exact < 0)) {
        return above ? result : std::nextafter(result, std::numeric_limits<float>::infinity());
    }
    return above ? std::nextafter(result, -std::numeric_limits<float>::infinity()) : result;
}
template <Round R, class From> inline double double_from(From value) {  // From is a 64-bit integer
    double result = static_cast<double>(value);
    if (R == Round::nearest) {
        return result;
    }
    const __int128 exact = static_cast<__int128>(value);
    const __int128 got = static_cast<__int128>(result);
    if (got == exact) {
        return result;
    }
    const bool above = got > exact;
    if (R == Round::up || (R == Round::zero && exact < 0)) {
        return above ? result : std::nextafter(result, std::numeric_limits<double>::infinity());
    }
    return above ? std::nextafter(result, -std::numeric_limits<double>::infinity()) : result;
}
}  // namespace hostcuda
#define HC_CONVERSIONS(suffix, mode)                                                                                             \
    inline int __float2int_##suffix(float x) { return hostcuda::to_integer<int, hostcuda::Round::mode>(x); }                     \
    inline unsigned __float2uint_##suffix(float x) { return hostcuda::to_integer<unsigned, hostcuda::Round::mode>(x); }          \
    inline long long __float2ll_##suffix(float x) { return hostcuda::to_integer<long long, hostcuda::Round::mode>(x); }          \
    inline unsigned long long __float2ull_##suffix(float x) {                                                                    \
        return hostcuda::to_integer<unsigned long long, hostcuda::Round::mode>(x);                                               \
    }                                                                                                                            \
    inline int __double2int_##suffix(double x) { return hostcuda::to_integer<int, hostcuda::Round::mode>(x); }                   \
    inline unsigned __double2uint_##suffix(double x) { return hostcuda::to_integer<unsigned, hostcuda::Round::mode>(x); }        \
    inline long long __double2ll_##suffix(double x) { return hostcuda::to_integer<long long, hostcuda::Round::mode>(x); }        \
    inline unsigned long long __double2ull_##suffix(double x) {                                                                  \
        return hostcuda::to_integer<unsigned long long, hostcuda::Round::mode>(x);                                               \
    }                                                                                                                            \
    inline float __int2float_##suffix(int x) { return hostcuda::float_from<hostcuda::Round::mode>(x); }                          \
    inline float __uint2float_##suffix(unsigned x) { return hostcuda::float_from<hostcuda::Round::mode>(x); }                    \
    inline float __ll2float_##suffix(long long x) { return hostcuda::float_from<hostcuda::Round::mode>(x); }                     \
    inline float __ull2float_##suffix(unsigned long long x) { return hostcuda::float_from<hostcuda::Round::mode>(x); }           \
    inline float __double2float_##suffix(double x) { return hostcuda::float_from<hostcuda::Round::mode>(x); }                    \
    inline double __ll2double_##suffix(long long x) { return hostcuda::double_from<hostcuda::Round::mode>(x); }                  \
    inline double __ull2double_##suffix(unsigned long long x) { return hostcuda::double_from<hostcuda::Round::mode>(x); }
HC_ROUNDINGS(HC_CONVERSIONS)
#undef HC_CONVERSIONS
#undef HC_ROUNDINGS
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }

// ---- fast single precision. glibc's math.h declares some of these names with C linkage, so all are defined with it.
extern "C" {
inline float __expf(float x) noexcept { return std::exp(x); }
inline float __exp10f(float x) noexcept { return static_cast<float>(std::pow(10.0, static_cast<double>(x))); }
inline float __logf(float x) noexcept { return std::log(x); }
inline float __log2f(float x) noexcept { return std::log2(x); }
inline float __log10f(float x) noexcept { return std::log10(x); }
inline float __sinf(float x) noexcept { return std::sin(x); }
inline float __cosf(float x) noexcept { return std::cos(x); }
inline float __tanf(float x) noexcept { return std::tan(x); }
inline float __tanhf(float x) noexcept { return std::tanh(x); }
inline void __sincosf(float x, float* sine, float* cosine) noexcept {
    *sine = std::sin(x);
    *cosine = std::cos(x);
}
// exp2(y * log2(x)), so a negative base gives NaN whatever the exponent
inline float __powf(float x, float y) noexcept {
    return static_cast<float>(std::exp2(static_cast<double>(y) * std::log2(static_cast<double>(x))));
}
}
// 0 where 2^126 < |y| < 2^128 and x is finite, NaN where x is infinite (CUDA Math API, "__fdividef")
inline float __fdividef(float x, float y) {
    const float size = std::fabs(y);
    if (size > 0x1p126f && std::isfinite(size)) {
        return std::isinf(x) ? std::numeric_limits<float>::quiet_NaN() : x != x ? x : std::copysign(0.0f, x * y);
    }
    return x / y;
}
inline float fdividef(float x, float y) { return x / y; }
inline double fdivide(double x, double y) { return x / y; }
inline float fdivide(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x >= 1.0f ? 1.0f : x > 0.0f ? x : 0.0f; }

// ---- functions beyond the C library
namespace hostcuda {
// sin(pi x) and cos(pi x), the argument reduced exactly
inline double sin_pi(double x) {
    if (!std::isfinite(x)) return std::numeric_limits<double>::quiet_NaN();
    const double r = std::remainder(x, 2.0);  // in [-1, 1], exact
    if (r == 0.0 || std::fabs(r) == 1.0) return std::copysign(0.0, x);
    const double quarter = std::nearbyint(2.0 * r);
    const double t = (r - 0.5 * quarter) * 3.14159265358979323846;
    switch (static_cast<int>(quarter) & 3) {
        case 0: return std::sin(t);
        case 1: return std::cos(t);
        case 2: return -std::sin(t);
        default: return -std::cos(t);
    }
}
inline double cos_pi(double x) {
    if (!std::isfinite(x)) return std::numeric_limits<double>::quiet_NaN();
    const double r = std::fabs(std::remainder(x, 2.0));
    if (r == 0.5) return 0.0;
    const double quarter = std::nearbyint(2.0 * r);
    const double t = (r - 0.5 * quarter) * 3.14159265358979323846;
    switch (static_cast<int>(quarter) & 3) {
        case 0: return std::cos(t);
        case 1: return -std::sin(t);
        case 2: return -std::cos(t);
        default: return std::sin(t);
    }
}

// Inverse of erfc on (0, 2): a start value (asymptotic, or Winitzki 2008 near 1), then Halley steps on erfc itself.
inline double inverse_erfc(double y) {
    if (!(y >= 0.0 && y <= 2.0)) return std::numeric_limits<double>::quiet_NaN();
    if (y == 0.0) return std::numeric_limits<double>::infinity();
    if (y == 2.0) return -std::numeric_limits<double>::infinity();
    const bool reflected = y > 1.0;
    const double p = reflected ? 2.0 - y : y;
    const double two_over_root_pi = 1.12837916709551257390;
    const double a = 0.147;
    const double logarithm = std::log(p) + std::log1p(1.0 - p);  // log(1 - z^2) with z = 1 - p
    const double half = 2.0 / (3.14159265358979323846 * a) + 0.5 * logarithm;
    double t = std::sqrt(std::sqrt(half * half - logarithm / a) - half);
    for (int step = 0; step < 4; ++step) {
        const double error = std::erfc(t) - p;
        const double slope = two_over_root_pi * std::exp(-t * t);
        if (slope == 0.0) break;
        const double newton = error / slope;
        t += newton / (1.0 - t * newton);
    }
    return reflected ? -t : t;
}
inline double inverse_erf(double x) {
    const double size = std::fabs(x);
    if (!(size <= 1.0)) return std::numeric_limits<double>::quiet_NaN();
    if (size >= 0.5) return std::copysign(inverse_erfc(1.0 - size), x);  // 1 - size is exact
    const double two_over_root_pi = 1.12837916709551257390;
    double t = x / two_over_root_pi;
    for (int step = 0; step < 5; ++step) {
        const double newton = (std::erf(t) - x) / (two_over_root_pi * std::exp(-t * t));
        t -= newton / (1.0 + t * newton);
    }
    return t;
}
// exp(x^2) erfc(x); beyond 12 by its continued fraction, where the product would overflow times underflow.
inline double scaled_erfc(double x) {
    if (x < 12.0) {
        const double square = x * x;
        const double lost = std::fma(x, x, -square);
        return std::exp(square) * (1.0 + lost) * std::erfc(x);
    }
    double tail = 0.0;
    for (int k = 40; k >= 1; --k) {
        tail = 0.5 * k / (x + tail);
    }
    return 0.56418958354775628695 / (x + tail);
}
inline double bessel_i(int order, double x) {
    const double value = std::cyl_bessel_i(static_cast<double>(order), std::fabs(x));
    return order % 2 != 0 && x < 0 ? -value : value;
}
template <class T> inline T norm_of(int count, const T* values) {
    long double sum = 0;
    for (int i = 0; i < count; ++i) {
        if (std::isinf(values[i])) return std::numeric_limits<T>::infinity();
        sum += static_cast<long double>(values[i]) * static_cast<long double>(values[i]);
    }
    return static_cast<T>(std::sqrt(sum));
}
}  // namespace hostcuda

#if !defined(__GLIBC_PREREQ)
#define HC_LIBC_HAS(minor) 0
#else
#define HC_LIBC_HAS(minor) __GLIBC_PREREQ(2, minor)
#endif
#if !HC_LIBC_HAS(42)
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
#endif
#if !HC_LIBC_HAS(41)
inline double sinpi(double x) { return hostcuda::sin_pi(x); }
inline double cospi(double x) { return hostcuda::cos_pi(x); }
inline float sinpif(float x) { return static_cast<float>(hostcuda::sin_pi(x)); }
inline float cospif(float x) { return static_cast<float>(hostcuda::cos_pi(x)); }
#endif
#undef HC_LIBC_HAS
inline float rsqrt(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline float sinpi(float x) { return static_cast<float>(hostcuda::sin_pi(x)); }
inline float cospi(float x) { return static_cast<float>(hostcuda::cos_pi(x)); }
inline void sincospi(double x, double* s, double* c) { *s = hostcuda::sin_pi(x); *c = hostcuda::cos_pi(x); }
inline void sincospif(float x, float* s, float* c) {
    *s = static_cast<float>(hostcuda::sin_pi(x));
    *c = static_cast<float>(hostcuda::cos_pi(x));
}
inline void sincospi(float x, float* s, float* c) { sincospif(x, s, c); }
inline void sincos(float x, float* s, float* c) { *s = std::sin(x); *c = std::cos(x); }
inline float exp10(float x) { return static_cast<float>(std::pow(10.0, static_cast<double>(x))); }

#define HC_FUNCTION1(name, expression)                             \
    inline double name(double x) { return expression; }            \
    inline float name##f(float value) {                            \
        const double x = value;                                    \
        return static_cast<float>(expression);                     \
    }                                                              \
    inline float name(float value) { return name##f(value); }
HC_FUNCTION1(rcbrt, 1.0 / std::cbrt(x))
HC_FUNCTION1(erfinv, hostcuda::inverse_erf(x))
HC_FUNCTION1(erfcinv, hostcuda::inverse_erfc(x))
HC_FUNCTION1(erfcx, hostcuda::scaled_erfc(x))
HC_FUNCTION1(normcdf, 0.5 * std::erfc(x * -0.70710678118654752440))
HC_FUNCTION1(normcdfinv, -1.41421356237309504880 * hostcuda::inverse_erfc(2.0 * x))
HC_FUNCTION1(cyl_bessel_i0, hostcuda::bessel_i(0, x))
HC_FUNCTION1(cyl_bessel_i1, hostcuda::bessel_i(1, x))
#undef HC_FUNCTION1

inline float normf(int count, const float* values) { return hostcuda::norm_of(count, values); }
inline double norm(int count, const double* values) { return hostcuda::norm_of(count, values); }
inline float rnormf(int count, const float* values) { return 1.0f / normf(count, values); }
inline double rnorm(int count, const double* values) { return 1.0 / norm(count, values); }
inline double norm3d(double a, double b, double c) { const double v[] = {a, b, c}; return hostcuda::norm_of(3, v); }
inline double norm4d(double a, double b, double c, double d) { const double v[] = {a, b, c, d}; return hostcuda::norm_of(4, v); }
inline float norm3df(float a, float b, float c) { const float v[] = {a, b, c}; return hostcuda::norm_of(3, v); }
inline float norm4df(float a, float b, float c, float d) { const float v[] = {a, b, c, d}; return hostcuda::norm_of(4, v); }
inline double rhypot(double a, double b) { return 1.0 / std::hypot(a, b); }
inline float rhypotf(float a, float b) { return static_cast<float>(1.0 / std::hypot(static_cast<double>(a), static_cast<double>(b))); }
inline double rnorm3d(double a, double b, double c) { return 1.0 / norm3d(a, b, c); }
inline double rnorm4d(double a, double b, double c, double d) { return 1.0 / norm4d(a, b, c, d); }
inline float rnorm3df(float a, float b, float c) { return static_cast<float>(rnorm3d(a, b, c)); }
inline float rnorm4df(float a, float b, float c, float d) { return static_cast<float>(rnorm4d(a, b, c, d)); }

// ---- min and max: the overloads CUDA has, the floating ones as fmin and fmax (a NaN loses)
#define HC_MINMAX(type)                                                    \
    inline type min(type a, type b) { return a < b ? a : b; }              \
    inline type max(type a, type b) { return a > b ? a : b; }
#define HC_MINMAX_MIXED(result, first, second)                                                                           \
    inline result min(first a, second b) { return min(static_cast<result>(a), static_cast<result>(b)); }                 \
    inline result max(first a, second b) { return max(static_cast<result>(a), static_cast<result>(b)); }                 \
    inline result min(second a, first b) { return min(static_cast<result>(a), static_cast<result>(b)); }                 \
    inline result max(second a, first b) { return max(static_cast<result>(a), static_cast<result>(b)); }
HC_MINMAX(int)
HC_MINMAX(unsigned)
HC_MINMAX(long)
HC_MINMAX(unsigned long)
HC_MINMAX(long long)
HC_MINMAX(unsigned long long)
HC_MINMAX_MIXED(unsigned, int, unsigned)
HC_MINMAX_MIXED(unsigned long, long, unsigned long)
HC_MINMAX_MIXED(unsigned long long, long long, unsigned long long)
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline double min(double a, double b) { return __builtin_fmin(a, b); }
inline double max(double a, double b) { return __builtin_fmax(a, b); }
HC_MINMAX_MIXED(double, float, double)
#undef HC_MINMAX
#undef HC_MINMAX_MIXED
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline long long llmin(long long a, long long b) { return min(a, b); }
inline long long llmax(long long a, long long b) { return max(a, b); }
inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }

// ---- integers
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    x = ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
    x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
    x = ((x >> 4) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4);
    return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
    return (static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32) | __brev(static_cast<unsigned>(x >> 32));
}
// Position of the offset-th set bit from `base` on: upwards for a positive offset, downwards for a negative one, at base for 0.
inline unsigned __fns(unsigned mask, unsigned base, int offset) {
    if (offset == 0) return base < 32 && ((mask >> base) & 1u) ? base : 0xffffffffu;
    int left = offset > 0 ? offset : -offset;
    for (int position = static_cast<int>(base); position >= 0 && position < 32; position += offset > 0 ? 1 : -1) {
        if (((mask >> position) & 1u) && --left == 0) return static_cast<unsigned>(position);
    }
    return 0xffffffffu;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const std::uint64_t bytes = (static_cast<std::uint64_t>(y) << 32) | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        result |= static_cast<unsigned>((bytes >> (8 * ((selector >> (4 * i)) & 7u))) & 0xffu) << (8 * i);
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((((static_cast<std::uint64_t>(high) << 32) | low) << (shift & 31u)) >> 32);
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32u ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>(((static_cast<std::uint64_t>(high) << 32) | low) >> (shift & 31u));
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32u ? high : __funnelshift_r(low, high, shift);
}
inline int __mul24(int x, int y) {  // of the low 24 bits, signed; the low 32 bits of the product
    const auto extend = [](int v) { return static_cast<std::int64_t>(static_cast<int>(static_cast<unsigned>(v) << 8) >> 8); };
    return static_cast<int>(extend(x) * extend(y));
}
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
inline int __mulhi(int x, int y) { return static_cast<int>((static_cast<std::int64_t>(x) * y) >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return static_cast<unsigned>((static_cast<std::uint64_t>(x) * y) >> 32); }
inline long long __mul64hi(long long x, long long y) { return static_cast<long long>((static_cast<__int128>(x) * y) >> 64); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return static_cast<unsigned long long>((static_cast<unsigned __int128>(x) * y) >> 64);
}
inline int __hadd(int x, int y) { return static_cast<int>((static_cast<std::int64_t>(x) + y) >> 1); }
inline int __rhadd(int x, int y) { return static_cast<int>((static_cast<std::int64_t>(x) + y + 1) >> 1); }
inline unsigned __uhadd(unsigned x, unsigned y) { return static_cast<unsigned>((static_cast<std::uint64_t>(x) + y) >> 1); }
inline unsigned __urhadd(unsigned x, unsigned y) { return static_cast<unsigned>((static_cast<std::uint64_t>(x) + y + 1) >> 1); }
inline unsigned __sad(int x, int y, unsigned z) {
    const std::int64_t difference = static_cast<std::int64_t>(x) - y;
    return static_cast<unsigned>(difference < 0 ? -difference : difference) + z;
}
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x > y ? x - y : y - x) + z; }

namespace hostcuda {
template <class A, class B> inline unsigned dot(unsigned a, unsigned b, unsigned c, int bits_a, int first_b, int count) {
    for (int i = 0; i < count; ++i) {
        const int x = static_cast<A>(a >> (bits_a * i));
        const int y = static_cast<B>(b >> (8 * (i + first_b)));
        c += static_cast<unsigned>(x * y);
    }
    return c;
}
}  // namespace hostcuda
inline int __dp4a(int a, int b, int c) {
    return static_cast<int>(hostcuda::dot<signed char, signed char>(static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<unsigned>(c), 8, 0, 4));
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return hostcuda::dot<unsigned char, unsigned char>(a, b, c, 8, 0, 4); }
inline int __dp4a(char4 a, char4 b, int c) { return __dp4a(hostcuda::bits_cast<int>(a), hostcuda::bits_cast<int>(b), c); }
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) { return __dp4a(hostcuda::bits_cast<unsigned>(a), hostcuda::bits_cast<unsigned>(b), c); }
#define HC_DP2A(name, first)                                                                                                     \
    inline int name(int a, int b, int c) {                                                                                       \
        return static_cast<int>(hostcuda::dot<short, signed char>(static_cast<unsigned>(a), static_cast<unsigned>(b),            \
                                                                  static_cast<unsigned>(c), 16, first, 2));                      \
    }                                                                                                                            \
    inline unsigned name(unsigned a, unsigned b, unsigned c) { return hostcuda::dot<unsigned short, unsigned char>(a, b, c, 16, first, 2); } \
    inline int name(short2 a, char4 b, int c) { return name(hostcuda::bits_cast<int>(a), hostcuda::bits_cast<int>(b), c); }      \
    inline unsigned name(ushort2 a, uchar4 b, unsigned c) {                                                                      \
        return name(hostcuda::bits_cast<unsigned>(a), hostcuda::bits_cast<unsigned>(b), c);                                      \
    }
HC_DP2A(__dp2a_lo, 0)
HC_DP2A(__dp2a_hi, 2)
#undef HC_DP2A

// ---- packed integers: two halfwords or four bytes in one word
namespace hostcuda {
template <int Lanes, bool Signed> inline int lane(unsigned word, int i) {
    constexpr int width = 32 / Lanes;
    const unsigned field = (word >> (width * i)) & ((1u << width) - 1);
    return Signed ? static_cast<int>(field << (32 - width)) >> (32 - width) : static_cast<int>(field);
}
template <int Lanes> inline unsigned field(int value, int i) {
    constexpr int width = 32 / Lanes;
    return (static_cast<unsigned>(value) & ((1u << width) - 1)) << (width * i);
}
template <int Lanes, bool Signed, class Operation> inline unsigned packed(unsigned a, unsigned b, Operation operation) {
    unsigned result = 0;
    for (int i = 0; i < Lanes; ++i) {
        result |= field<Lanes>(operation(lane<Lanes, Signed>(a, i), lane<Lanes, Signed>(b, i)), i);
    }
    return result;
}
template <int Lanes, bool Signed> inline int clamped(int value) {
    constexpr int width = 32 / Lanes;
    constexpr int low = Signed ? -(1 << (width - 1)) : 0;
    constexpr int high = Signed ? (1 << (width - 1)) - 1 : (1 << width) - 1;
    return value < low ? low : value > high ? high : value;
}
inline int distance(int a, int b) { return a < b ? b - a : a - b; }
}  // namespace hostcuda
#define HC_PACKED2(name, is_signed, expression)                                                                                       \
    inline unsigned name##2(unsigned x, unsigned y) {                                                                                 \
        constexpr int lanes = 2;                                                                                                      \
        (void)lanes;                                                                                                                  \
        return hostcuda::packed<2, is_signed>(x, y, [](int a, int b) -> int { (void)b; return expression; });                         \
    }                                                                                                                                 \
    inline unsigned name##4(unsigned x, unsigned y) {                                                                                 \
        constexpr int lanes = 4;                                                                                                      \
        (void)lanes;                                                                                                                  \
        return hostcuda::packed<4, is_signed>(x, y, [](int a, int b) -> int { (void)b; return expression; });                         \
    }
#define HC_PACKED1(name, expression)                                                                                                  \
    inline unsigned name##2(unsigned x) {                                                                                             \
        constexpr int lanes = 2;                                                                                                      \
        (void)lanes;                                                                                                                  \
        return hostcuda::packed<2, true>(x, 0, [](int a, int) -> int { return expression; });                                         \
    }                                                                                                                                 \
    inline unsigned name##4(unsigned x) {                                                                                             \
        constexpr int lanes = 4;                                                                                                      \
        (void)lanes;                                                                                                                  \
        return hostcuda::packed<4, true>(x, 0, [](int a, int) -> int { return expression; });                                         \
    }
HC_PACKED2(__vadd, false, a + b)
HC_PACKED2(__vsub, false, a - b)
HC_PACKED2(__vaddss, true, (hostcuda::clamped<lanes, true>(a + b)))
HC_PACKED2(__vaddus, false, (hostcuda::clamped<lanes, false>(a + b)))
HC_PACKED2(__vsubss, true, (hostcuda::clamped<lanes, true>(a - b)))
HC_PACKED2(__vsubus, false, (hostcuda::clamped<lanes, false>(a - b)))
HC_PACKED2(__vavgs, true, (a + b + (a + b >= 0 ? 1 : 0)) >> 1)
HC_PACKED2(__vavgu, false, (a + b + 1) >> 1)
HC_PACKED2(__vhaddu, false, (a + b) >> 1)
HC_PACKED2(__vmaxs, true, a > b ? a : b)
HC_PACKED2(__vmaxu, false, a > b ? a : b)
HC_PACKED2(__vmins, true, a < b ? a : b)
HC_PACKED2(__vminu, false, a < b ? a : b)
HC_PACKED2(__vabsdiffs, true, hostcuda::distance(a, b))
HC_PACKED2(__vabsdiffu, false, hostcuda::distance(a, b))
HC_PACKED1(__vabs, a < 0 ? -a : a)
HC_PACKED1(__vabsss, (hostcuda::clamped<lanes, true>(a < 0 ? -a : a)))
HC_PACKED1(__vneg, -a)
HC_PACKED1(__vnegss, (hostcuda::clamped<lanes, true>(-a)))
#define HC_PACKED_COMPARE(name, is_signed, relation)          \
    HC_PACKED2(__vcmp##name, is_signed, a relation b ? -1 : 0) \
    HC_PACKED2(__vset##name, is_signed, a relation b ? 1 : 0)
HC_PACKED_COMPARE(eq, false, ==)
HC_PACKED_COMPARE(ne, false, !=)
HC_PACKED_COMPARE(ges, true, >=)
HC_PACKED_COMPARE(geu, false, >=)
HC_PACKED_COMPARE(gts, true, >)
HC_PACKED_COMPARE(gtu, false, >)
HC_PACKED_COMPARE(les, true, <=)
HC_PACKED_COMPARE(leu, false, <=)
HC_PACKED_COMPARE(lts, true, <)
HC_PACKED_COMPARE(ltu, false, <)
#undef HC_PACKED_COMPARE
#define HC_PACKED_SUM(name, is_signed)                                                                                           \
    inline unsigned name##2(unsigned x, unsigned y) {                                                                            \
        unsigned sum = 0;                                                                                                        \
        for (int i = 0; i < 2; ++i) sum += static_cast<unsigned>(hostcuda::distance(hostcuda::lane<2, is_signed>(x, i), hostcuda::lane<2, is_signed>(y, i))); \
        return sum;                                                                                                              \
    }                                                                                                                            \
    inline unsigned name##4(unsigned x, unsigned y) {                                                                            \
        unsigned sum = 0;                                                                                                        \
        for (int i = 0; i < 4; ++i) sum += static_cast<unsigned>(hostcuda::distance(hostcuda::lane<4, is_signed>(x, i), hostcuda::lane<4, is_signed>(y, i))); \
        return sum;                                                                                                              \
    }
HC_PACKED_SUM(__vsads, true)
HC_PACKED_SUM(__vsadu, false)
#undef HC_PACKED_SUM
#undef HC_PACKED1
#undef HC_PACKED2

// ---- DPX: dynamic programming steps; additions wrap
#define HC_DPX(suffix, type, wrap)                                                                                         \
    inline type __vimax3_##suffix(type a, type b, type c) { return max(max(a, b), c); }                                    \
    inline type __vimin3_##suffix(type a, type b, type c) { return min(min(a, b), c); }                                    \
    inline type __viaddmax_##suffix(type a, type b, type c) { return max(static_cast<type>(static_cast<wrap>(a) + static_cast<wrap>(b)), c); } \
    inline type __viaddmin_##suffix(type a, type b, type c) { return min(static_cast<type>(static_cast<wrap>(a) + static_cast<wrap>(b)), c); } \
    inline type __vibmax_##suffix(type a, type b, bool* first) { *first = a >= b; return *first ? a : b; }                 \
    inline type __vibmin_##suffix(type a, type b, bool* first) { *first = a <= b; return *first ? a : b; }
HC_DPX(s32, int, unsigned)
HC_DPX(u32, unsigned, unsigned)
#undef HC_DPX
inline int __vimax_s32_relu(int a, int b) { return max(max(a, b), 0); }
inline int __vimin_s32_relu(int a, int b) { return max(min(a, b), 0); }
inline int __vimax3_s32_relu(int a, int b, int c) { return max(__vimax3_s32(a, b, c), 0); }
inline int __vimin3_s32_relu(int a, int b, int c) { return max(__vimin3_s32(a, b, c), 0); }
inline int __viaddmax_s32_relu(int a, int b, int c) { return max(__viaddmax_s32(a, b, c), 0); }
inline int __viaddmin_s32_relu(int a, int b, int c) { return max(__viaddmin_s32(a, b, c), 0); }
#define HC_DPX2(suffix, is_max, is_min)                                                                                            \
    inline unsigned __vimax3_##suffix(unsigned a, unsigned b, unsigned c) { return is_max(is_max(a, b), c); }                      \
    inline unsigned __vimin3_##suffix(unsigned a, unsigned b, unsigned c) { return is_min(is_min(a, b), c); }                      \
    inline unsigned __viaddmax_##suffix(unsigned a, unsigned b, unsigned c) { return is_max(__vadd2(a, b), c); }                   \
    inline unsigned __viaddmin_##suffix(unsigned a, unsigned b, unsigned c) { return is_min(__vadd2(a, b), c); }                   \
    inline unsigned __vibmax_##suffix(unsigned a, unsigned b, bool* high, bool* low) {                                             \
        const unsigned result = is_max(a, b);                                                                                      \
        *high = (result >> 16) == (a >> 16);                                                                                       \
        *low = (result & 0xffffu) == (a & 0xffffu);                                                                                \
        return result;                                                                                                             \
    }                                                                                                                              \
    inline unsigned __vibmin_##suffix(unsigned a, unsigned b, bool* high, bool* low) {                                             \
        const unsigned result = is_min(a, b);                                                                                      \
        *high = (result >> 16) == (a >> 16);                                                                                       \
        *low = (result & 0xffffu) == (a & 0xffffu);                                                                                \
        return result;                                                                                                             \
    }
HC_DPX2(s16x2, __vmaxs2, __vmins2)
HC_DPX2(u16x2, __vmaxu2, __vminu2)
#undef HC_DPX2
inline unsigned __vimax_s16x2_relu(unsigned a, unsigned b) { return __vmaxs2(__vmaxs2(a, b), 0); }
inline unsigned __vimin_s16x2_relu(unsigned a, unsigned b) { return __vmaxs2(__vmins2(a, b), 0); }
inline unsigned __vimax3_s16x2_relu(unsigned a, unsigned b, unsigned c) { return __vmaxs2(__vimax3_s16x2(a, b, c), 0); }
inline unsigned __vimin3_s16x2_relu(unsigned a, unsigned b, unsigned c) { return __vmaxs2(__vimin3_s16x2(a, b, c), 0); }
inline unsigned __viaddmax_s16x2_relu(unsigned a, unsigned b, unsigned c) { return __vmaxs2(__viaddmax_s16x2(a, b, c), 0); }
inline unsigned __viaddmin_s16x2_relu(unsigned a, unsigned b, unsigned c) { return __vmaxs2(__viaddmin_s16x2(a, b, c), 0); }

// ---- loads and stores with cache hints: a hint changes speed, never the value
template <class T> inline T __ldg(const T* address) { return *address; }
template <class T> inline T __ldca(const T* address) { return *address; }
template <class T> inline T __ldcg(const T* address) { return *address; }
template <class T> inline T __ldcs(const T* address) { return *address; }
template <class T> inline T __ldlu(const T* address) { return *address; }
template <class T> inline T __ldcv(const T* address) { return *address; }
template <class T> inline void __stwb(T* address, typename hostcuda::Same<T>::type value) { *address = value; }
template <class T> inline void __stcg(T* address, typename hostcuda::Same<T>::type value) { *address = value; }
template <class T> inline void __stcs(T* address, typename hostcuda::Same<T>::type value) { *address = value; }
template <class T> inline void __stwt(T* address, typename hostcuda::Same<T>::type value) { *address = value; }

#endif

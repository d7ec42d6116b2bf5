// CUDA's half precision for the host device: __half and __half2 as storage (2 and 4 bytes, IEEE binary16), every
// conversion with the rounding its name promises, and the arithmetic of hostcuda/half_common.inc. The switches that
// torch sets for its extensions (__CUDA_NO_HALF_OPERATORS__, __CUDA_NO_HALF_CONVERSIONS__, __CUDA_NO_HALF2_OPERATORS__) do
// here what they do there, so that a source that would not compile for a GPU does not compile here either.
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
#ifndef HOSTCUDA_TORCH_SCALAR
#define HOSTCUDA_TORCH_SCALAR
// Recognises torch's c10::Half (11 significant bits) and c10::BFloat16 (8) without including torch: on a GPU those convert
// from and to CUDA's types.
template <class T, int Digits, class = void> struct IsTorchScalar : std::false_type {};
template <class T, int Digits>
struct IsTorchScalar<T, Digits, std::void_t<typename T::from_bits_t, decltype(T::x)>>
    : std::bool_constant<std::numeric_limits<T>::digits == Digits> {};
#endif
template <class To> To narrow(float value);
template <class To> To narrow(double value);
}  // namespace hostcuda

struct alignas(2) __half {
    unsigned short __x;

    __half() = default;
    constexpr __half(const __half_raw& raw) : __x(raw.x) {}
    __half& operator=(const __half_raw& raw) { __x = raw.x; return *this; }
    volatile __half& operator=(const __half_raw& raw) volatile { __x = raw.x; return *this; }
    volatile __half& operator=(const volatile __half_raw& raw) volatile { __x = raw.x; return *this; }
    operator __half_raw() const { return __half_raw{__x}; }
    operator __half_raw() const volatile { return __half_raw{__x}; }

    template <class S, std::enable_if_t<hostcuda::IsTorchScalar<S, 11>::value, int> = 0>
    __half(const S& scalar) : __x(scalar.x) {}
    template <class S, std::enable_if_t<hostcuda::IsTorchScalar<S, 11>::value, int> = 0>
    operator S() const { return S(__x, S::from_bits()); }

#if !defined(__CUDA_NO_HALF_CONVERSIONS__)
    explicit __half(__nv_bfloat16 value);  // defined in cuda_bf16.h
    __half(float value) : __x(hostcuda::float_to_half(value)) {}
    __half(double value) : __x(hostcuda::double_to_half<hostcuda::Round::nearest>(value)) {}
    __half(short value) : __x(of(static_cast<double>(value))) {}
    __half(unsigned short value) : __x(of(static_cast<double>(value))) {}
    __half(int value) : __x(of(static_cast<double>(value))) {}
    __half(unsigned value) : __x(of(static_cast<double>(value))) {}
    __half(long value) : __x(of(hostcuda::odd_double(static_cast<long long>(value)))) {}
    __half(unsigned long value) : __x(of(hostcuda::odd_double(static_cast<unsigned long long>(value)))) {}
    __half(long long value) : __x(of(hostcuda::odd_double(value))) {}
    __half(unsigned long long value) : __x(of(hostcuda::odd_double(value))) {}

    operator float() const { return hostcuda::half_to_float(__x); }
    operator signed char() const { return to<signed char>(); }
    operator unsigned char() const { return to<unsigned char>(); }
    operator char() const { return to<char>(); }
    operator short() const { return to<short>(); }
    operator unsigned short() const { return to<unsigned short>(); }
    operator int() const { return to<int>(); }
    operator unsigned() const { return to<unsigned>(); }
    operator long() const { return to<long>(); }
    operator unsigned long() const { return to<unsigned long>(); }
    operator long long() const { return to<long long>(); }
    operator unsigned long long() const { return to<unsigned long long>(); }
    constexpr operator bool() const { return (__x & 0x7fffu) != 0; }

    __half& operator=(float value) { return *this = __half(value); }
    __half& operator=(double value) { return *this = __half(value); }
    __half& operator=(short value) { return *this = __half(value); }
    __half& operator=(unsigned short value) { return *this = __half(value); }
    __half& operator=(int value) { return *this = __half(value); }
    __half& operator=(unsigned value) { return *this = __half(value); }
    __half& operator=(long long value) { return *this = __half(value); }
    __half& operator=(unsigned long long value) { return *this = __half(value); }

private:
    static unsigned short of(double exact) { return hostcuda::double_to_half<hostcuda::Round::nearest>(exact); }
    template <class To> To to() const {
        return hostcuda::to_integer<To, hostcuda::Round::zero>(hostcuda::half_to_float(__x));
    }
#endif
};

struct alignas(4) __half2 {
    __half x, y;

    __half2() = default;
    constexpr __half2(const __half& a, const __half& b) : x(a), y(b) {}
    __half2(const __half2_raw& raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
    __half2& operator=(const __half2_raw& raw) { return *this = __half2(raw); }
    operator __half2_raw() const { return __half2_raw{x.__x, y.__x}; }
};

using half = __half;
using half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;
using __nv_half = __half;
using __nv_half2 = __half2;
using __nv_half_raw = __half_raw;
using __nv_half2_raw = __half2_raw;

namespace hostcuda {
inline float widen(__half value) { return half_to_float(value.__x); }
template <> inline __half narrow<__half>(float value) { return __half(__half_raw{float_to_half(value)}); }
template <Round R> inline __half half_of(double exact) { return __half(__half_raw{double_to_half<R>(exact)}); }
template <> inline __half narrow<__half>(double value) { return half_of<Round::nearest>(value); }
}  // namespace hostcuda

// ---- conversions
inline __half __float2half(float value) { return hostcuda::narrow<__half>(value); }
inline __half __float2half_rn(float value) { return hostcuda::narrow<__half>(value); }
inline __half __float2half_rz(float value) { return hostcuda::half_of<hostcuda::Round::zero>(value); }
inline __half __float2half_ru(float value) { return hostcuda::half_of<hostcuda::Round::up>(value); }
inline __half __float2half_rd(float value) { return hostcuda::half_of<hostcuda::Round::down>(value); }
inline __half __double2half(double value) { return hostcuda::half_of<hostcuda::Round::nearest>(value); }
inline float __half2float(__half value) { return hostcuda::widen(value); }

#define HC_INTEGER(short_name, type, exact)                                                                             \
    inline __half __##short_name##2half_rn(type value) { return hostcuda::half_of<hostcuda::Round::nearest>(exact); } \
    inline __half __##short_name##2half_rz(type value) { return hostcuda::half_of<hostcuda::Round::zero>(exact); }    \
    inline __half __##short_name##2half_ru(type value) { return hostcuda::half_of<hostcuda::Round::up>(exact); }      \
    inline __half __##short_name##2half_rd(type value) { return hostcuda::half_of<hostcuda::Round::down>(exact); }    \
    inline type __half2##short_name##_rn(__half value) {                                                                \
        return hostcuda::to_integer<type, hostcuda::Round::nearest>(hostcuda::widen(value));                            \
    }                                                                                                                   \
    inline type __half2##short_name##_rz(__half value) {                                                                \
        return hostcuda::to_integer<type, hostcuda::Round::zero>(hostcuda::widen(value));                               \
    }                                                                                                                   \
    inline type __half2##short_name##_ru(__half value) {                                                                \
        return hostcuda::to_integer<type, hostcuda::Round::up>(hostcuda::widen(value));                                 \
    }                                                                                                                   \
    inline type __half2##short_name##_rd(__half value) {                                                                \
        return hostcuda::to_integer<type, hostcuda::Round::down>(hostcuda::widen(value));                               \
    }
HC_INTEGER(short, short, static_cast<double>(value))
HC_INTEGER(ushort, unsigned short, static_cast<double>(value))
HC_INTEGER(int, int, static_cast<double>(value))
HC_INTEGER(uint, unsigned, static_cast<double>(value))
HC_INTEGER(ll, long long, hostcuda::odd_double(value))
HC_INTEGER(ull, unsigned long long, hostcuda::odd_double(value))
#undef HC_INTEGER
inline signed char __half2char_rz(__half value) {
    return hostcuda::to_integer<signed char, hostcuda::Round::zero>(hostcuda::widen(value));
}
inline unsigned char __half2uchar_rz(__half value) {
    return hostcuda::to_integer<unsigned char, hostcuda::Round::zero>(hostcuda::widen(value));
}

inline short __half_as_short(__half value) { return static_cast<short>(value.__x); }
inline unsigned short __half_as_ushort(__half value) { return value.__x; }
inline __half __short_as_half(short bits) { return __half(__half_raw{static_cast<unsigned short>(bits)}); }
inline __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }

// ---- pairs
inline __half2 make_half2(__half x, __half y) { return __half2(x, y); }
inline __half2 __halves2half2(__half x, __half y) { return __half2(x, y); }
inline __half2 __half2half2(__half x) { return __half2(x, x); }
inline __half2 __float2half2_rn(float x) { return __half2(__float2half(x), __float2half(x)); }
inline __half2 __floats2half2_rn(float x, float y) { return __half2(__float2half(x), __float2half(y)); }
inline __half2 __float22half2_rn(float2 v) { return __half2(__float2half(v.x), __float2half(v.y)); }
inline float2 __half22float2(__half2 a) { return make_float2(hostcuda::widen(a.x), hostcuda::widen(a.y)); }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __half2 __low2half2(__half2 a) { return __half2(a.x, a.x); }
inline __half2 __high2half2(__half2 a) { return __half2(a.y, a.y); }
inline __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
inline __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }

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

#define HC_T __half
#define HC_T2 __half2
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

#endif

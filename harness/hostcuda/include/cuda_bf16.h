// CUDA's bfloat16 for the host device; the same construction as cuda_fp16.h, for the type with a float's exponent and eight
// significant bits. Honours __CUDA_NO_BFLOAT16_CONVERSIONS__, __CUDA_NO_BFLOAT16_OPERATORS__ and __CUDA_NO_BFLOAT162_OPERATORS__.
// Pure.
#ifndef HOSTCUDA_CUDA_BF16_H
#define HOSTCUDA_CUDA_BF16_H

#include <type_traits>

#include "hostcuda/float_bits.h"
#include "vector_functions.h"
#include "vector_types.h"
#include "cuda_fp16.h"

struct __half;
struct alignas(2) __nv_bfloat16_raw { unsigned short x; };
struct alignas(4) __nv_bfloat162_raw { unsigned short x, y; };

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

struct alignas(2) __nv_bfloat16 {
    unsigned short __x;

    __nv_bfloat16() = default;
    constexpr __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
    __nv_bfloat16& operator=(const __nv_bfloat16_raw& raw) { __x = raw.x; return *this; }
    volatile __nv_bfloat16& operator=(const __nv_bfloat16_raw& raw) volatile { __x = raw.x; return *this; }
    volatile __nv_bfloat16& operator=(const volatile __nv_bfloat16_raw& raw) volatile { __x = raw.x; return *this; }
    operator __nv_bfloat16_raw() const { return __nv_bfloat16_raw{__x}; }
    operator __nv_bfloat16_raw() const volatile { return __nv_bfloat16_raw{__x}; }

    // Explicit as torch's own conversion: otherwise two of torch's values compare by the operators of this type, too.
    template <class S, std::enable_if_t<hostcuda::IsTorchScalar<S, 8>::value, int> = 0>
    explicit __nv_bfloat16(const S& scalar) : __x(scalar.x) {}
    template <class S, std::enable_if_t<hostcuda::IsTorchScalar<S, 8>::value, int> = 0>
    operator S() const { return S(__x, S::from_bits()); }

#if !defined(__CUDA_NO_BFLOAT16_CONVERSIONS__)
    explicit __nv_bfloat16(__half value) : __x(hostcuda::float_to_bfloat16(hostcuda::half_to_float(value.__x))) {}
    __nv_bfloat16(float value) : __x(hostcuda::float_to_bfloat16(value)) {}
    __nv_bfloat16(double value) : __x(hostcuda::double_to_bfloat16<hostcuda::Round::nearest>(value)) {}
    __nv_bfloat16(short value) : __x(of(static_cast<double>(value))) {}
    __nv_bfloat16(unsigned short value) : __x(of(static_cast<double>(value))) {}
    __nv_bfloat16(int value) : __x(of(static_cast<double>(value))) {}
    __nv_bfloat16(unsigned value) : __x(of(static_cast<double>(value))) {}
    __nv_bfloat16(long value) : __x(of(hostcuda::odd_double(static_cast<long long>(value)))) {}
    __nv_bfloat16(unsigned long value) : __x(of(hostcuda::odd_double(static_cast<unsigned long long>(value)))) {}
    __nv_bfloat16(long long value) : __x(of(hostcuda::odd_double(value))) {}
    __nv_bfloat16(unsigned long long value) : __x(of(hostcuda::odd_double(value))) {}

    operator float() const { return hostcuda::bfloat16_to_float(__x); }
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

    __nv_bfloat16& operator=(float value) { return *this = __nv_bfloat16(value); }
    __nv_bfloat16& operator=(double value) { return *this = __nv_bfloat16(value); }
    __nv_bfloat16& operator=(short value) { return *this = __nv_bfloat16(value); }
    __nv_bfloat16& operator=(unsigned short value) { return *this = __nv_bfloat16(value); }
    __nv_bfloat16& operator=(int value) { return *this = __nv_bfloat16(value); }
    __nv_bfloat16& operator=(unsigned value) { return *this = __nv_bfloat16(value); }
    __nv_bfloat16& operator=(long long value) { return *this = __nv_bfloat16(value); }
    __nv_bfloat16& operator=(unsigned long long value) { return *this = __nv_bfloat16(value); }

private:
    static unsigned short of(double exact) { return hostcuda::double_to_bfloat16<hostcuda::Round::nearest>(exact); }
    template <class To> To to() const {
        return hostcuda::to_integer<To, hostcuda::Round::zero>(hostcuda::bfloat16_to_float(__x));
    }
#endif
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;

    __nv_bfloat162() = default;
    constexpr __nv_bfloat162(const __nv_bfloat16& a, const __nv_bfloat16& b) : x(a), y(b) {}
    __nv_bfloat162(const __nv_bfloat162_raw& raw) : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y}) {}
    __nv_bfloat162& operator=(const __nv_bfloat162_raw& raw) { return *this = __nv_bfloat162(raw); }
    operator __nv_bfloat162_raw() const { return __nv_bfloat162_raw{x.__x, y.__x}; }
};

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

namespace hostcuda {
inline float widen(__nv_bfloat16 value) { return bfloat16_to_float(value.__x); }
template <> inline __nv_bfloat16 narrow<__nv_bfloat16>(float value) { return __nv_bfloat16(__nv_bfloat16_raw{float_to_bfloat16(value)}); }
template <Round R> inline __nv_bfloat16 bfloat16_of(double exact) { return __nv_bfloat16(__nv_bfloat16_raw{double_to_bfloat16<R>(exact)}); }
template <> inline __nv_bfloat16 narrow<__nv_bfloat16>(double value) { return bfloat16_of<Round::nearest>(value); }
}  // namespace hostcuda

// ---- conversions
inline __nv_bfloat16 __float2bfloat16(float value) { return hostcuda::narrow<__nv_bfloat16>(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return hostcuda::narrow<__nv_bfloat16>(value); }
inline __nv_bfloat16 __float2bfloat16_rz(float value) { return hostcuda::bfloat16_of<hostcuda::Round::zero>(value); }
inline __nv_bfloat16 __float2bfloat16_ru(float value) { return hostcuda::bfloat16_of<hostcuda::Round::up>(value); }
inline __nv_bfloat16 __float2bfloat16_rd(float value) { return hostcuda::bfloat16_of<hostcuda::Round::down>(value); }
inline __nv_bfloat16 __double2bfloat16(double value) { return hostcuda::bfloat16_of<hostcuda::Round::nearest>(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return hostcuda::widen(value); }

#define HC_INTEGER(short_name, type, exact)                                                                             \
    inline __nv_bfloat16 __##short_name##2bfloat16_rn(type value) { return hostcuda::bfloat16_of<hostcuda::Round::nearest>(exact); } \
    inline __nv_bfloat16 __##short_name##2bfloat16_rz(type value) { return hostcuda::bfloat16_of<hostcuda::Round::zero>(exact); }    \
    inline __nv_bfloat16 __##short_name##2bfloat16_ru(type value) { return hostcuda::bfloat16_of<hostcuda::Round::up>(exact); }      \
    inline __nv_bfloat16 __##short_name##2bfloat16_rd(type value) { return hostcuda::bfloat16_of<hostcuda::Round::down>(exact); }    \
    inline type __bfloat162##short_name##_rn(__nv_bfloat16 value) {                                                                \
        return hostcuda::to_integer<type, hostcuda::Round::nearest>(hostcuda::widen(value));                            \
    }                                                                                                                   \
    inline type __bfloat162##short_name##_rz(__nv_bfloat16 value) {                                                                \
        return hostcuda::to_integer<type, hostcuda::Round::zero>(hostcuda::widen(value));                               \
    }                                                                                                                   \
    inline type __bfloat162##short_name##_ru(__nv_bfloat16 value) {                                                                \
        return hostcuda::to_integer<type, hostcuda::Round::up>(hostcuda::widen(value));                                 \
    }                                                                                                                   \
    inline type __bfloat162##short_name##_rd(__nv_bfloat16 value) {                                                                \
        return hostcuda::to_integer<type, hostcuda::Round::down>(hostcuda::widen(value));                               \
    }
HC_INTEGER(short, short, static_cast<double>(value))
HC_INTEGER(ushort, unsigned short, static_cast<double>(value))
HC_INTEGER(int, int, static_cast<double>(value))
HC_INTEGER(uint, unsigned, static_cast<double>(value))
HC_INTEGER(ll, long long, hostcuda::odd_double(value))
HC_INTEGER(ull, unsigned long long, hostcuda::odd_double(value))
#undef HC_INTEGER
inline signed char __bfloat162char_rz(__nv_bfloat16 value) {
    return hostcuda::to_integer<signed char, hostcuda::Round::zero>(hostcuda::widen(value));
}
inline unsigned char __bfloat162uchar_rz(__nv_bfloat16 value) {
    return hostcuda::to_integer<unsigned char, hostcuda::Round::zero>(hostcuda::widen(value));
}

inline short __bfloat16_as_short(__nv_bfloat16 value) { return static_cast<short>(value.__x); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.__x; }
inline __nv_bfloat16 __short_as_bfloat16(short bits) { return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(bits)}); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16(__nv_bfloat16_raw{bits}); }

// ---- pairs
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return __nv_bfloat162(x, y); }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return __nv_bfloat162(x, y); }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return __nv_bfloat162(x, x); }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return __nv_bfloat162(__float2bfloat16(x), __float2bfloat16(x)); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return __nv_bfloat162(__float2bfloat16(x), __float2bfloat16(y)); }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __nv_bfloat162(__float2bfloat16(v.x), __float2bfloat16(v.y)); }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return make_float2(hostcuda::widen(a.x), hostcuda::widen(a.y)); }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return __nv_bfloat162(a.x, a.x); }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return __nv_bfloat162(a.y, a.y); }
inline __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.x, b.x); }
inline __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.y, b.y); }

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

#define HC_T __nv_bfloat16
#define HC_T2 __nv_bfloat162
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

#if !defined(__CUDA_NO_HALF_CONVERSIONS__)
inline __half::__half(__nv_bfloat16 value) : __x(hostcuda::float_to_half(hostcuda::bfloat16_to_float(value.__x))) {}
#endif

#endif

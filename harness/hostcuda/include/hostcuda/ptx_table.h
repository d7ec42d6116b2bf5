// What the C++ that harness/hostcuda/ptx writes for inline PTX calls. Semantics are those of NVIDIA's "Parallel Thread
// Execution ISA"; layouts of matrix fragments are those of its sections on ldmatrix and mma. Registers are raw bits.
// Pure but for the warp-wide ones, which go through warp_exchange(), and cp.async, which the runtime carries out.
#ifndef HOSTCUDA_PTX_TABLE_H
#define HOSTCUDA_PTX_TABLE_H

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <type_traits>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"
#include "hostcuda/float_bits.h"
#include "hostcuda/interface.h"
#include "hostcuda/math_intrinsics.h"
#include "hostcuda/matrix.h"
#include "hostcuda/mbarrier.h"
#include "hostcuda/warp.h"

namespace hostcuda {
namespace ptx {

// ---- registers
// The bits of an asm operand. A pointer or an array gives its address; a smaller integer is widened as C++ widens it.
template <class Raw, class T> inline Raw operand(const T& value) {
    if constexpr (std::is_pointer<T>::value || std::is_null_pointer<T>::value) {
        return static_cast<Raw>(reinterpret_cast<std::uintptr_t>(value));
    } else if constexpr (std::is_array<T>::value) {
        return static_cast<Raw>(reinterpret_cast<std::uintptr_t>(&value[0]));
    } else if constexpr (std::is_integral<T>::value || std::is_enum<T>::value) {
        return static_cast<Raw>(value);
    } else {
        static_assert(sizeof(T) == sizeof(Raw), "an asm operand must have the size its constraint names");
        return bits_cast<Raw>(value);
    }
}
template <class T, class Raw> inline void result(T& place, const Raw& bits) {
    if constexpr (std::is_pointer<T>::value) {
        place = reinterpret_cast<T>(static_cast<std::uintptr_t>(bits));
    } else if constexpr (std::is_integral<T>::value || std::is_enum<T>::value) {
        place = static_cast<T>(bits);
    } else {
        static_assert(sizeof(T) == sizeof(Raw), "an asm operand must have the size its constraint names");
        place = bits_cast<T>(bits);
    }
}
// Register bits read as a type: the low bits where the type is narrower.
template <class T, class Raw> inline T as(const Raw& bits) {
    if constexpr (std::is_integral<T>::value) {
        return static_cast<T>(bits);
    } else if constexpr (sizeof(T) == 2) {
        return bits_cast<T>(static_cast<std::uint16_t>(bits));
    } else if constexpr (sizeof(T) == 4) {
        return bits_cast<T>(static_cast<std::uint32_t>(bits));
    } else if constexpr (sizeof(T) == 8) {
        return bits_cast<T>(static_cast<std::uint64_t>(bits));
    } else {
        return static_cast<T>(bits);
    }
}
template <class Raw, class T> inline Raw raw(const T& value) {
    if constexpr (std::is_integral<T>::value || std::is_same<T, unsigned __int128>::value) {
        return static_cast<Raw>(value);  // sign- or zero-extended, as ld.s8 and ld.u8 into a 32-bit register are
    } else if constexpr (sizeof(T) == 2) {
        return static_cast<Raw>(bits_cast<std::uint16_t>(value));
    } else if constexpr (sizeof(T) == 4) {
        return static_cast<Raw>(bits_cast<std::uint32_t>(value));
    } else {
        return static_cast<Raw>(bits_cast<std::uint64_t>(value));
    }
}
// A literal. An integer literal in a floating-point instruction is a bit pattern.
template <class T, class Literal> inline T immediate(Literal literal) {
    if constexpr (std::is_integral<Literal>::value) {
        return as<T>(static_cast<unsigned long long>(literal));
    } else if constexpr (std::is_arithmetic<T>::value) {
        return static_cast<T>(literal);
    } else {
        return as<T>(static_cast<unsigned long long>(bits_of(static_cast<float>(literal))));
    }
}

// ---- floating point
inline float flushed(float value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}
template <bool Ftz, class T> inline T flush(T value) {
    if constexpr (Ftz && std::is_same<T, float>::value) {
        return flushed(value);
    } else {
        return value;
    }
}
template <bool Sat, class T> inline T saturate(T value) {
    if constexpr (Sat) {
        return value >= T(1) ? T(1) : value > T(0) ? value : T(0);
    } else {
        return value;
    }
}
#define HC_BINARY(name, sign, half_name, half_pair)                                                           \
    template <Round R, bool Ftz, bool Sat, bool Relu> inline float name(float a, float b) {                   \
        const float r = rounded<R>([](float x, float y, float) { return x sign y; }, flush<Ftz>(a), flush<Ftz>(b)); \
        return saturate<Sat>(flush<Ftz>(r));                                                                  \
    }                                                                                                         \
    template <Round R, bool Ftz, bool Sat, bool Relu> inline double name(double a, double b) {                \
        return rounded<R>([](double x, double y, double) { return x sign y; }, a, b);                         \
    }                                                                                                         \
    template <Round R, bool Ftz, bool Sat, bool Relu> inline __half name(__half a, __half b) {                \
        return Sat ? half_name##_sat(a, b) : half_name(a, b);                                                 \
    }                                                                                                         \
    template <Round R, bool Ftz, bool Sat, bool Relu> inline __half2 name(__half2 a, __half2 b) {             \
        return Sat ? half_pair##_sat(a, b) : half_pair(a, b);                                                 \
    }                                                                                                         \
    template <Round R, bool Ftz, bool Sat, bool Relu> inline __nv_bfloat16 name(__nv_bfloat16 a, __nv_bfloat16 b) {     \
        return Sat ? half_name##_sat(a, b) : half_name(a, b);                                                 \
    }                                                                                                         \
    template <Round R, bool Ftz, bool Sat, bool Relu> inline __nv_bfloat162 name(__nv_bfloat162 a, __nv_bfloat162 b) {  \
        return Sat ? half_pair##_sat(a, b) : half_pair(a, b);                                                 \
    }
HC_BINARY(add, +, __hadd, __hadd2)
HC_BINARY(sub, -, __hsub, __hsub2)
HC_BINARY(mul, *, __hmul, __hmul2)
#undef HC_BINARY
template <Round R, bool Ftz, bool Sat, bool Relu> inline float div(float a, float b) {
    return saturate<Sat>(flush<Ftz>(rounded<R>([](float x, float y, float) { return x / y; }, flush<Ftz>(a), flush<Ftz>(b))));
}
template <Round R, bool Ftz, bool Sat, bool Relu> inline double div(double a, double b) {
    return rounded<R>([](double x, double y, double) { return x / y; }, a, b);
}
template <Round R, bool Ftz, bool Sat, bool Relu> inline float fma(float a, float b, float c) {
    const float r = rounded<R>([](float x, float y, float z) { return __builtin_fmaf(x, y, z); }, flush<Ftz>(a), flush<Ftz>(b),
                               flush<Ftz>(c));
    return saturate<Sat>(flush<Ftz>(r));
}
template <Round R, bool Ftz, bool Sat, bool Relu> inline double fma(double a, double b, double c) {
    return rounded<R>([](double x, double y, double z) { return __builtin_fma(x, y, z); }, a, b, c);
}
#define HC_FUSED(type, name)                                                                         \
    template <Round R, bool Ftz, bool Sat, bool Relu> inline type fma(type a, type b, type c) {      \
        return Relu ? name##_relu(a, b, c) : Sat ? name##_sat(a, b, c) : name(a, b, c);              \
    }
HC_FUSED(__half, __hfma)
HC_FUSED(__half2, __hfma2)
HC_FUSED(__nv_bfloat16, __hfma)
HC_FUSED(__nv_bfloat162, __hfma2)
#undef HC_FUSED
template <Round R, bool Ftz, bool Sat, bool Relu, class T> inline T rcp(T a) {
    return flush<Ftz>(rounded<R>([](T x, T, T) { return T(1) / x; }, flush<Ftz>(a)));
}
template <Round R, bool Ftz, bool Sat, bool Relu, class T> inline T sqrt(T a) {
    return flush<Ftz>(rounded<R>([](T x, T, T) { return std::sqrt(x); }, flush<Ftz>(a)));
}
#define HC_APPROXIMATE(name, expression, half_name)                                                                    \
    template <bool Ftz> inline float name(float value) {                                                               \
        const double x = flush<Ftz>(value);                                                                            \
        return flush<Ftz>(static_cast<float>(expression));                                                             \
    }                                                                                                                  \
    template <bool Ftz> inline double name(double x) { return expression; }                                            \
    template <bool Ftz> inline __half name(__half a) { return half_name(a); }                                          \
    template <bool Ftz> inline __nv_bfloat16 name(__nv_bfloat16 a) { return half_name(a); }                            \
    template <bool Ftz> inline __half2 name(__half2 a) { return __half2(half_name(a.x), half_name(a.y)); }             \
    template <bool Ftz> inline __nv_bfloat162 name(__nv_bfloat162 a) { return __nv_bfloat162(half_name(a.x), half_name(a.y)); }
HC_APPROXIMATE(rsqrt, 1.0 / std::sqrt(x), hrsqrt)
HC_APPROXIMATE(ex2, std::exp2(x), hexp2)
HC_APPROXIMATE(lg2, std::log2(x), hlog2)
HC_APPROXIMATE(sin, std::sin(x), hsin)
HC_APPROXIMATE(cos, std::cos(x), hcos)
HC_APPROXIMATE(tanh, std::tanh(x), htanh)
#undef HC_APPROXIMATE
#define HC_EXTREME(name, function, half_name)                                                                                 \
    template <bool Ftz, bool Nan> inline float name(float a, float b) {                                                       \
        if (Nan && (a != a || b != b)) return float_of_bits(0x7fffffffu);                                                     \
        return flush<Ftz>(function(a, b));                                                                                    \
    }                                                                                                                         \
    template <bool Ftz, bool Nan> inline double name(double a, double b) { return function(a, b); }                           \
    template <bool Ftz, bool Nan> inline __half name(__half a, __half b) { return Nan ? half_name##_nan(a, b) : half_name(a, b); } \
    template <bool Ftz, bool Nan> inline __nv_bfloat16 name(__nv_bfloat16 a, __nv_bfloat16 b) {                               \
        return Nan ? half_name##_nan(a, b) : half_name(a, b);                                                                 \
    }                                                                                                                         \
    template <bool Ftz, bool Nan> inline __half2 name(__half2 a, __half2 b) {                                                 \
        return __half2(name<Ftz, Nan>(a.x, b.x), name<Ftz, Nan>(a.y, b.y));                                                   \
    }                                                                                                                         \
    template <bool Ftz, bool Nan> inline __nv_bfloat162 name(__nv_bfloat162 a, __nv_bfloat162 b) {                            \
        return __nv_bfloat162(name<Ftz, Nan>(a.x, b.x), name<Ftz, Nan>(a.y, b.y));                                            \
    }
HC_EXTREME(min, std::fmin, __hmin)
HC_EXTREME(max, std::fmax, __hmax)
#undef HC_EXTREME
template <class T> inline T integer_min(T a, typename Same<T>::type b) { return a < b ? a : b; }
template <class T> inline T integer_max(T a, typename Same<T>::type b) { return a > b ? a : b; }
template <class T> inline T neg(T a) {
    if constexpr (std::is_integral<T>::value) {
        return static_cast<T>(std::make_unsigned_t<T>(0) - static_cast<std::make_unsigned_t<T>>(a));
    } else {
        return -a;
    }
}
inline __half neg(__half a) { return __hneg(a); }
inline __half2 neg(__half2 a) { return __hneg2(a); }
inline __nv_bfloat16 neg(__nv_bfloat16 a) { return __hneg(a); }
inline __nv_bfloat162 neg(__nv_bfloat162 a) { return __hneg2(a); }
template <class T> inline T abs(T a) { return a < T(0) || (std::is_floating_point<T>::value && std::signbit(static_cast<double>(a))) ? neg(a) : a; }
inline __half abs(__half a) { return __habs(a); }
inline __half2 abs(__half2 a) { return __habs2(a); }
inline __nv_bfloat16 abs(__nv_bfloat16 a) { return __habs(a); }
inline __nv_bfloat162 abs(__nv_bfloat162 a) { return __habs2(a); }
template <class T> inline bool is_finite(T a) { return std::isfinite(a); }
template <class T> inline bool is_infinite(T a) { return std::isinf(a); }
template <class T> inline bool is_number(T a) { return !std::isnan(a); }
template <class T> inline bool is_notanumber(T a) { return std::isnan(a); }
template <class T> inline bool is_normal(T a) { return std::isnormal(a); }
template <class T> inline bool is_subnormal(T a) { return std::fpclassify(a) == FP_SUBNORMAL; }

template <class T, class = void> struct Compared { static T of(T value) { return value; } };
template <> struct Compared<__half> { static float of(__half value) { return widen(value); } };
template <> struct Compared<__nv_bfloat16> { static float of(__nv_bfloat16 value) { return widen(value); } };
template <class T> inline bool unordered(T a, T b) {
    const auto x = Compared<T>::of(a), y = Compared<T>::of(b);
    return x != x || y != y;
}
#define HC_COMPARISON(name, relation)                                                                                 \
    template <class T> inline bool compare_##name(T a, T b) {                                                         \
        return !unordered(a, b) && Compared<T>::of(a) relation Compared<T>::of(b);                                    \
    }                                                                                                                 \
    template <class T> inline bool compare_##name##u(T a, T b) { return unordered(a, b) || compare_##name(a, b); }
HC_COMPARISON(eq, ==)
HC_COMPARISON(ne, !=)
HC_COMPARISON(lt, <)
HC_COMPARISON(le, <=)
HC_COMPARISON(gt, >)
HC_COMPARISON(ge, >=)
#undef HC_COMPARISON
template <class T> inline bool compare_num(T a, T b) { return !unordered(a, b); }
template <class T> inline bool compare_nan(T a, T b) { return unordered(a, b); }

// ---- integers
template <class T> inline T wrapping_add(T a, T b) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
}
template <class T> inline T wrapping_sub(T a, T b) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) - static_cast<std::make_unsigned_t<T>>(b));
}
inline std::int32_t clamped_s32(std::int64_t value) {
    return static_cast<std::int32_t>(value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value);
}
inline std::int32_t saturating_add(std::int32_t a, std::int32_t b) { return clamped_s32(static_cast<std::int64_t>(a) + b); }
inline std::int32_t saturating_sub(std::int32_t a, std::int32_t b) { return clamped_s32(static_cast<std::int64_t>(a) - b); }
template <class T> inline __int128 full_product(T a, T b) { return static_cast<__int128>(a) * static_cast<__int128>(b); }
// The condition code's carry or borrow goes in, out, or both.
template <bool In, bool Out, class T> inline T add_carry(T a, typename Same<T>::type b) {
    using U = std::make_unsigned_t<T>;
    const unsigned __int128 sum = static_cast<unsigned __int128>(static_cast<U>(a)) + static_cast<U>(b) + (In && carry());
    if (Out) set_carry((sum >> (8 * sizeof(T)) & 1) != 0);
    return static_cast<T>(static_cast<U>(sum));
}
template <bool In, bool Out, class T> inline T sub_borrow(T a, typename Same<T>::type b) {
    using U = std::make_unsigned_t<T>;
    const unsigned __int128 difference = static_cast<unsigned __int128>(static_cast<U>(a)) - static_cast<U>(b) - (In && carry());
    if (Out) set_carry((difference >> (8 * sizeof(T)) & 1) != 0);
    return static_cast<T>(static_cast<U>(difference));
}
template <class T> inline T mul_lo(T a, T b) { return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b)); }
template <class T> inline T mul_hi(T a, T b) { return static_cast<T>(full_product(a, b) >> (8 * sizeof(T))); }
inline std::uint64_t mul_hi(std::uint64_t a, std::uint64_t b) { return __umul64hi(a, b); }
inline std::int32_t mul_wide(std::int16_t a, std::int16_t b) { return static_cast<std::int32_t>(a) * b; }
inline std::uint32_t mul_wide(std::uint16_t a, std::uint16_t b) { return static_cast<std::uint32_t>(a) * b; }
inline std::int64_t mul_wide(std::int32_t a, std::int32_t b) { return static_cast<std::int64_t>(a) * b; }
inline std::uint64_t mul_wide(std::uint32_t a, std::uint32_t b) { return static_cast<std::uint64_t>(a) * b; }
// Division by zero gives all ones, as GPUs do (PTX leaves it unspecified); the overflowing quotient wraps.
template <class T> inline T divide(T a, T b) {
    if (b == 0) return static_cast<T>(~std::uint64_t(0));
    if (std::is_signed<T>::value && b == static_cast<T>(-1)) return neg(a);
    return static_cast<T>(a / b);
}
template <class T> inline T remainder(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed<T>::value && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
}
template <class T> inline T shl(T a, std::uint32_t amount) {
    return amount >= 8 * sizeof(T) ? T(0) : static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) << amount);
}
template <class T> inline T shr(T a, std::uint32_t amount) {
    if (amount >= 8 * sizeof(T)) return a < T(0) ? static_cast<T>(-1) : T(0);
    return static_cast<T>(a >> amount);
}
inline std::uint32_t lop3(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t table) {
    std::uint32_t result = 0;
    if (table & 0x01) result |= ~a & ~b & ~c;
    if (table & 0x02) result |= ~a & ~b & c;
    if (table & 0x04) result |= ~a & b & ~c;
    if (table & 0x08) result |= ~a & b & c;
    if (table & 0x10) result |= a & ~b & ~c;
    if (table & 0x20) result |= a & ~b & c;
    if (table & 0x40) result |= a & b & ~c;
    if (table & 0x80) result |= a & b & c;
    return result;
}
// A selector's fourth bit replicates the byte's sign; __byte_perm() never sets it, the instruction may.
inline std::uint32_t prmt_index(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
    const std::uint64_t bytes = (static_cast<std::uint64_t>(b) << 32) | a;
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
        const std::uint32_t pick = (selector >> (4 * i)) & 15u;
        std::uint32_t byte = static_cast<std::uint32_t>(bytes >> (8 * (pick & 7u))) & 0xffu;
        if (pick & 8u) byte = byte & 0x80u ? 0xffu : 0u;
        result |= byte << (8 * i);
    }
    return result;
}
#define HC_PERMUTE(mode, s0, s1, s2, s3)                                                                   \
    inline std::uint32_t prmt_##mode(std::uint32_t a, std::uint32_t b, std::uint32_t c) {                  \
        static const std::uint32_t selectors[4] = {s0, s1, s2, s3};                                        \
        return prmt_index(a, b, selectors[c & 3u]);                                                        \
    }
HC_PERMUTE(f4e, 0x3210u, 0x4321u, 0x5432u, 0x6543u)
HC_PERMUTE(b4e, 0x5670u, 0x6701u, 0x7012u, 0x0123u)
HC_PERMUTE(rc8, 0x0000u, 0x1111u, 0x2222u, 0x3333u)
HC_PERMUTE(ecl, 0x3210u, 0x3211u, 0x3222u, 0x3333u)
HC_PERMUTE(ecr, 0x0000u, 0x1110u, 0x2210u, 0x3210u)
HC_PERMUTE(rc16, 0x1010u, 0x3232u, 0x1010u, 0x3232u)
#undef HC_PERMUTE
template <class T> inline T bfe(T value, std::uint32_t position, std::uint32_t length) {
    constexpr int bits = 8 * sizeof(T);
    position &= 0xffu;
    length &= 0xffu;
    if (length == 0) return 0;
    const int last = static_cast<int>(position + length) - 1;
    const bool sign = std::is_signed<T>::value && ((static_cast<std::uint64_t>(value) >> (last < bits - 1 ? last : bits - 1)) & 1u);
    std::uint64_t result = 0;
    for (int i = 0; i < bits; ++i) {
        const int from = static_cast<int>(position) + i;
        const bool bit = i < static_cast<int>(length) && from < bits ? (static_cast<std::uint64_t>(value) >> from) & 1u : sign;
        result |= static_cast<std::uint64_t>(bit) << i;
    }
    return static_cast<T>(result);
}
template <class T> inline T bfi(T inserted, T base, std::uint32_t position, std::uint32_t length) {
    constexpr std::uint32_t bits = 8 * sizeof(T);
    position &= 0xffu;
    length &= 0xffu;
    for (std::uint32_t i = 0; i < length && position + i < bits; ++i) {
        const T mask = static_cast<T>(T(1) << (position + i));
        base = static_cast<T>((base & ~mask) | (((inserted >> i) & 1u) ? mask : T(0)));
    }
    return base;
}
inline std::uint32_t popc(std::uint32_t a) { return static_cast<std::uint32_t>(__popc(a)); }
inline std::uint32_t popc(std::uint64_t a) { return static_cast<std::uint32_t>(__popcll(a)); }
inline std::uint32_t clz(std::uint32_t a) { return static_cast<std::uint32_t>(__clz(static_cast<int>(a))); }
inline std::uint32_t clz(std::uint64_t a) { return static_cast<std::uint32_t>(__clzll(static_cast<long long>(a))); }
inline std::uint32_t brev(std::uint32_t a) { return __brev(a); }
inline std::uint64_t brev(std::uint64_t a) { return __brevll(a); }
template <class T> inline std::uint32_t bfind(T a) {
    const std::uint64_t bits = std::is_signed<T>::value && a < T(0) ? static_cast<std::uint64_t>(static_cast<T>(~a)) : static_cast<std::uint64_t>(a);
    return bits == 0 ? 0xffffffffu : static_cast<std::uint32_t>(63 - __builtin_clzll(bits));
}
template <class T> inline std::uint32_t bfind_shift(T a) {
    const std::uint32_t found = bfind(a);
    return found == 0xffffffffu ? found : static_cast<std::uint32_t>(8 * sizeof(T) - 1) - found;
}

// ---- conversions
template <class T, Round R, bool Relu> inline T narrowed(float value) {
    const double exact = Relu && value < 0.0f ? 0.0 : static_cast<double>(value);
    if constexpr (std::is_same<T, __half>::value) {
        return half_of<R>(exact);
    } else {
        return bfloat16_of<R>(exact);
    }
}
template <class T> struct IsNarrow : std::bool_constant<std::is_same<T, __half>::value || std::is_same<T, __nv_bfloat16>::value> {};
template <class To, Round R, bool Integral, bool Ftz, bool Sat, class From> inline To cvt(From from) {
    if constexpr (IsNarrow<From>::value) {
        return cvt<To, R, Integral, Ftz, Sat, float>(widen(from));
    } else if constexpr (std::is_floating_point<From>::value) {
        const From value = flush<Ftz>(from);
        if constexpr (std::is_integral<To>::value) {
            return to_integer<To, R>(value);
        } else {
            const From whole = Integral ? round_to_integral<R>(value) : value;
            const From limited = saturate<Sat>(whole);
            if constexpr (IsNarrow<To>::value) {
                const double exact = static_cast<double>(limited);
                if constexpr (std::is_same<To, __half>::value) {
                    return half_of<R>(exact);
                } else {
                    return bfloat16_of<R>(exact);
                }
            } else if constexpr (std::is_same<To, float>::value) {
                return flush<Ftz>(float_from<R>(limited));
            } else {
                return static_cast<To>(limited);
            }
        }
    } else if constexpr (std::is_integral<To>::value) {
        if constexpr (Sat) {
            const __int128 value = static_cast<__int128>(from);
            const __int128 low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
            return static_cast<To>(value < low ? low : value > high ? high : value);
        } else {
            return static_cast<To>(from);
        }
    } else if constexpr (std::is_same<To, float>::value) {
        if constexpr (sizeof(From) == 8) {
            return saturate<Sat>(float_from<R>(static_cast<std::conditional_t<std::is_signed<From>::value, long long, unsigned long long>>(from)));
        } else {
            return saturate<Sat>(float_from<R>(from));
        }
    } else if constexpr (std::is_same<To, double>::value) {
        return saturate<Sat>(double_from<R>(from));
    } else {
        double exact = 0;
        if constexpr (sizeof(From) == 8) {
            exact = odd_double(static_cast<std::conditional_t<std::is_signed<From>::value, long long, unsigned long long>>(from));
        } else {
            exact = static_cast<double>(from);
        }
        if constexpr (std::is_same<To, __half>::value) {
            return half_of<R>(exact);
        } else {
            return bfloat16_of<R>(exact);
        }
    }
}

// ---- memory
inline char* generic(std::uint64_t address, std::int64_t offset) {
    return reinterpret_cast<char*>(static_cast<std::uintptr_t>(address)) + offset;
}
inline char* shared(std::uint32_t address, std::int64_t offset) {
    return static_cast<char*>(shared_pointer(address + static_cast<std::uint32_t>(offset)));
}
inline char* shared(std::uint64_t address, std::int64_t offset) { return shared(static_cast<std::uint32_t>(address), offset); }
template <class T, int N> struct alignas(sizeof(T) * N) Vector { T element[N]; };
template <class T> inline T load(const char* address) { return *reinterpret_cast<const T*>(address); }
template <class T> inline void store(char* address, T value) { *reinterpret_cast<T*>(address) = value; }
template <class T, int N> inline Vector<T, N> load_vector(const char* address) { return *reinterpret_cast<const Vector<T, N>*>(address); }
template <class T, int N> inline void store_vector(char* address, const Vector<T, N>& value) { *reinterpret_cast<Vector<T, N>*>(address) = value; }
// mapa: the same place in another block of the cluster, as an address or as the 32-bit one that the cluster's blocks share.
inline std::uint64_t map_generic(std::uint64_t address, std::uint32_t rank, HOSTCUDA_LINE) {
    return reinterpret_cast<std::uintptr_t>(cluster_map(reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address)), rank, line));
}
inline std::uint32_t map_shared(std::uint32_t address, std::uint32_t rank, HOSTCUDA_LINE) {
    return shared_cluster_address(cluster_map(shared_pointer(address), rank, line));
}
// .volatile, .relaxed, .acquire, .release: accesses that other threads may wait for.
template <class T> struct Word { using type = T; };
template <> struct Word<float> { using type = std::uint32_t; };
template <> struct Word<double> { using type = std::uint64_t; };
template <> struct Word<__half2> { using type = std::uint32_t; };
template <class T> inline T load_strong(const char* address) {
    using Bits = typename Word<T>::type;
    return as<T>(__atomic_load_n(reinterpret_cast<const Bits*>(address), __ATOMIC_ACQUIRE));
}
template <class T> inline void store_strong(char* address, T value) {
    using Bits = typename Word<T>::type;
    __atomic_store_n(reinterpret_cast<Bits*>(address), raw<Bits>(value), __ATOMIC_RELEASE);
}

// cp.async: `kept` bytes are copied, the rest of `size` zeroed; 16 bytes alone with .cg. The runtime makes the copy when the thread
// waits for it, the latest moment a GPU may choose, so that a missing wait shows.
inline void cp_async(char* target, const char* source, int size, int kept, int only_size) {
    if ((only_size != 0 && size != only_size) || (size != 4 && size != 8 && size != 16) || kept < 0 || kept > size) {
        not_emulated("inline PTX: cp.async with a size that it does not have");
    }
    async_copy(target, source, static_cast<unsigned>(size), static_cast<unsigned>(kept));
}
inline void cp_async_commit() { async_commit(); }
inline void cp_async_wait(int groups_left) { async_wait(static_cast<unsigned>(groups_left)); }
inline void cp_async_wait_all() { async_wait_all(); }

// ---- barriers by number
inline void bar_sync(std::uint32_t number, std::uint32_t count, HOSTCUDA_LINE) { named_barrier(number, count, true, 0, BarrierAnswer::none, line); }
inline void bar_arrive(std::uint32_t number, std::uint32_t count, HOSTCUDA_LINE) { named_barrier(number, count, false, 0, BarrierAnswer::none, line); }
inline int bar_red(std::uint32_t number, std::uint32_t count, bool predicate, BarrierAnswer answer, HOSTCUDA_LINE) {
    return named_barrier(number, count, true, predicate, answer, line);
}

// ---- mbarrier and bulk copies
inline std::uint64_t* barrier_at(char* place) {
    if (reinterpret_cast<std::uintptr_t>(place) % 8 != 0) trap();
    return reinterpret_cast<std::uint64_t*>(place);
}
inline std::uint64_t mbarrier_come(char* place, std::uint32_t count, std::uint32_t dropped, std::uint32_t bytes, bool relaxed = false) {
    return mbarrier::come(barrier_at(place), count, dropped, static_cast<long long>(bytes), mbarrier::Nothing{}, relaxed);
}
inline void bind_and_arrive(char* place) {
    async_bind(place);
    (void)mbarrier::come(barrier_at(place), 1);
}
// Of whole 16 bytes, from and to their multiples.
inline void bulk_load(char* barrier, char* target, const char* source, std::uint32_t bytes) {
    if ((reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(source) | bytes) % 16 != 0) trap();
    async_bulk(barrier_at(barrier), target, source, bytes);
}
inline void bulk_store(char* target, const char* source, std::uint32_t bytes) {
    if ((reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(source) | bytes) % 16 != 0) trap();
    async_bulk_store(target, source, bytes);
}

inline std::uint64_t globaltimer() {  // nanoseconds
    std::timespec now;
    std::timespec_get(&now, TIME_UTC);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000ull + static_cast<std::uint64_t>(now.tv_nsec);
}

// ---- warps
// shfl.sync: the lane to read from, whether it lies inside the segment; else the lane's own value.
enum class Shuffle { up, down, bfly, idx };
template <Shuffle S> inline std::uint32_t shuffle(std::uint32_t value, std::uint32_t b, std::uint32_t c, std::uint32_t mask, bool& inside) {
    std::uint32_t all[32];
    warp_exchange(mask, &value, sizeof(value), all, "shfl.sync");
    const int lane = lane_id();
    const int distance = static_cast<int>(b & 31u), clamp = static_cast<int>(c & 31u), segment = static_cast<int>((c >> 8) & 31u);
    const int last = (lane & segment) | (clamp & ~segment);
    const int first = lane & segment;
    int from = 0;
    switch (S) {
        case Shuffle::up: from = lane - distance; inside = from >= last; break;
        case Shuffle::down: from = lane + distance; inside = from <= last; break;
        case Shuffle::bfly: from = lane ^ distance; inside = from <= last; break;
        case Shuffle::idx: from = first | (distance & ~segment); inside = from <= last; break;
    }
    return all[inside ? from : lane];
}
#define HC_SHUFFLE(mode)                                                                                                          \
    inline std::uint32_t shfl_##mode(std::uint32_t value, std::uint32_t b, std::uint32_t c, std::uint32_t mask, bool& inside) {   \
        return shuffle<Shuffle::mode>(value, b, c, mask, inside);                                                                 \
    }
HC_SHUFFLE(up)
HC_SHUFFLE(down)
HC_SHUFFLE(bfly)
HC_SHUFFLE(idx)
#undef HC_SHUFFLE
inline bool vote_uniform(std::uint32_t mask, bool predicate) {
    std::uint8_t mine = predicate ? 1 : 0, all[32];
    const unsigned gave = warp_exchange(mask, &mine, 1, all, "vote.sync.uni");
    for (int lane = 0; lane < 32; ++lane) {
        if (((gave >> lane) & 1u) && all[lane] != mine) return false;
    }
    return true;
}

// ---- matrices of 8 x 8 halfwords in shared memory: eight lanes give the addresses of a matrix's rows; lane L holds
// row L / 4, columns 2 * (L % 4) and the next (transposed: row and column exchanged).
struct alignas(4) Halfwords { std::uint16_t low, high; };
template <int Count, bool Transposed> inline void ldmatrix(std::uint32_t (&words)[Count], const char* row) {
    std::uint64_t all[32];
    const std::uint64_t mine = reinterpret_cast<std::uintptr_t>(row);
    warp_exchange(0xffffffffu, &mine, sizeof(mine), all, "ldmatrix");
    const int lane = lane_id();
    for (int i = 0; i < Count; ++i) {
        if (Transposed) {
            const int upper = 2 * (lane % 4);
            const auto* first = reinterpret_cast<const std::uint16_t*>(all[8 * i + upper]);
            const auto* second = reinterpret_cast<const std::uint16_t*>(all[8 * i + upper + 1]);
            words[i] = static_cast<std::uint32_t>(first[lane / 4]) | (static_cast<std::uint32_t>(second[lane / 4]) << 16);
        } else {
            words[i] = reinterpret_cast<const std::uint32_t*>(all[8 * i + lane / 4])[lane % 4];
        }
    }
    warp_exchange(0xffffffffu, &mine, 1, all, "ldmatrix");  // nobody goes on to overwrite a row that another lane still reads
}
template <int Count, bool Transposed> inline void stmatrix(const std::uint32_t (&words)[Count], char* row) {
    std::uint64_t all[32];
    const std::uint64_t mine = reinterpret_cast<std::uintptr_t>(row);
    warp_exchange(0xffffffffu, &mine, sizeof(mine), all, "stmatrix");
    const int lane = lane_id();
    for (int i = 0; i < Count; ++i) {
        if (Transposed) {
            const int upper = 2 * (lane % 4);
            reinterpret_cast<std::uint16_t*>(all[8 * i + upper])[lane / 4] = static_cast<std::uint16_t>(words[i]);
            reinterpret_cast<std::uint16_t*>(all[8 * i + upper + 1])[lane / 4] = static_cast<std::uint16_t>(words[i] >> 16);
        } else {
            reinterpret_cast<std::uint32_t*>(all[8 * i + lane / 4])[lane % 4] = words[i];
        }
    }
    warp_exchange(0xffffffffu, &mine, 1, all, "stmatrix");
}
inline std::uint32_t movmatrix(std::uint32_t word) {
    std::uint32_t all[32];
    warp_exchange(0xffffffffu, &word, sizeof(word), all, "movmatrix");
    const int row = lane_id() / 4, column = 2 * (lane_id() % 4);
    const auto element = [&](int r, int c) { return (all[4 * r + c / 2] >> (16 * (c % 2))) & 0xffffu; };
    return element(column, row) | (element(column + 1, row) << 16);
}

}  // namespace ptx
}  // namespace hostcuda

#endif

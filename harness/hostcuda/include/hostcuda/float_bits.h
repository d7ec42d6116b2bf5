// Bits of floating-point numbers and correctly rounded conversions between formats, for the host device. Pure: standard
// headers only; every function is total and free of side effects (rounded() alone touches the rounding mode and puts it
// back). Formats of 8 and 16 bits are encoded from a double, which holds every float, half, bfloat16 and 32-bit integer
// exactly, so that one rounding happens, never two.
#ifndef HOSTCUDA_FLOAT_BITS_H
#define HOSTCUDA_FLOAT_BITS_H

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__SSE2__) || defined(__F16C__)
#include <immintrin.h>
#endif

namespace hostcuda {

enum class Round { nearest, zero, up, down };

// constexpr, as constexpr functions of a solution call what is made of it under __CUDA_ARCH__.
template <class To, class From> constexpr To bits_cast(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "bits_cast between types of different size");
    return __builtin_bit_cast(To, from);
}
constexpr float float_of_bits(std::uint32_t bits) { return bits_cast<float>(bits); }
constexpr double double_of_bits(std::uint64_t bits) { return bits_cast<double>(bits); }
constexpr std::uint32_t bits_of(float value) { return bits_cast<std::uint32_t>(value); }
constexpr std::uint64_t bits_of(double value) { return bits_cast<std::uint64_t>(value); }

// Keeps the compiler from fusing this value's producer with its consumer: __fadd_rn(__fmul_rn(a, b), c) must not
// become one fused multiply-add, as a GPU compiler does not make it one either.
template <class T> inline T opaque(T value) {
#if defined(__SSE2__)
    asm("" : "+x"(value));
#elif defined(__aarch64__)
    asm("" : "+w"(value));
#else
    asm("" : "+m"(value));
#endif
    return value;
}

template <class T> inline void pin(T& value) {
#if defined(__SSE2__)
    asm volatile("" : "+x"(value));
#elif defined(__aarch64__)
    asm volatile("" : "+w"(value));
#else
    asm volatile("" : "+m"(value));
#endif
}

// operation(a, b, c) computed by the processor in rounding mode R. The operands and the result pass through pin(), so
// the arithmetic can't move out of the region where the mode is set.
template <Round R, class T, class Operation> inline T rounded(Operation operation, T a, T b = T(0), T c = T(0)) {
    if (R == Round::nearest) {
        return opaque(operation(opaque(a), opaque(b), c));
    }
#if defined(__SSE2__)
    const unsigned saved = _mm_getcsr();
    const unsigned mode = R == Round::zero ? 0x6000u : R == Round::up ? 0x4000u : 0x2000u;
    _mm_setcsr((saved & ~0x6000u) | mode);
#else
    const int saved = std::fegetround();
    std::fesetround(R == Round::zero ? FE_TOWARDZERO : R == Round::up ? FE_UPWARD : FE_DOWNWARD);
#endif
    pin(a);
    pin(b);
    pin(c);
    T result = operation(a, b, c);
    pin(result);
#if defined(__SSE2__)
    _mm_setcsr(saved);
#else
    std::fesetround(saved);
#endif
    return result;
}

// What to do with a value beyond the largest finite one.
enum class Overflow { infinity, saturate };

// Encodes `value` in a format of one sign bit, E exponent bits and M mantissa bits with an all-ones exponent for infinity and
// NaN (IEEE 754), or, with Finite, in the "fn" kind of FP8 E4M3 where only the all-ones pattern is NaN and there is no
// infinity. A NaN becomes the pattern `nan`.
template <int E, int M, bool Finite = false>
inline std::uint32_t encode(double value, Round round, std::uint32_t nan, Overflow overflow = Overflow::infinity) {
    const std::uint64_t bits = bits_of(value);
    const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 63) << (E + M);
    const int biased = static_cast<int>((bits >> 52) & 0x7ff);
    std::uint64_t significand = bits & 0xfffffffffffffull;
    constexpr std::uint32_t infinity = ((1u << E) - 1) << M;
    constexpr std::uint32_t largest = Finite ? (infinity | ((1u << M) - 2)) : infinity - 1;
    if (biased == 0x7ff) {
        if (significand != 0) {
            return nan;
        }
        if (Finite) {
            return overflow == Overflow::saturate ? (sign | largest) : (sign | (nan & ~(1u << (E + M))));
        }
        return sign | (overflow == Overflow::saturate ? largest : infinity);
    }
    constexpr int least_exponent = 2 - (1 << (E - 1));  // of the smallest normal number
    int exponent = biased - 1023;
    if (biased == 0) {
        exponent = -1022;
    } else {
        significand |= 1ull << 52;
    }
    int shift = 52 - M;
    if (exponent < least_exponent) {
        shift += least_exponent - exponent;
    }
    if (shift > 62) {
        shift = 62;  // the significand has 53 bits: all of it is remainder, its magnitude below half a unit
    }
    std::uint64_t kept = significand >> shift;
    const std::uint64_t rest = significand & ((1ull << shift) - 1);
    const std::uint64_t half = 1ull << (shift - 1);
    bool increment = false;
    switch (round) {
        case Round::nearest: increment = rest > half || (rest == half && (kept & 1)); break;
        case Round::zero: break;
        case Round::up: increment = rest != 0 && sign == 0; break;
        case Round::down: increment = rest != 0 && sign != 0; break;
    }
    kept += increment ? 1 : 0;
    std::uint64_t code = kept;  // a carry out of the mantissa lands in the exponent field, as it should
    if (exponent >= least_exponent) {
        code = (static_cast<std::uint64_t>(exponent - least_exponent) << M) + kept;
    }
    if (code > largest) {
        const bool away = round == Round::nearest || (round == Round::up && sign == 0) || (round == Round::down && sign != 0);
        if (overflow == Overflow::saturate || !away) {
            return sign | largest;
        }
        return Finite ? (sign | (nan & ~(1u << (E + M)))) : (sign | infinity);
    }
    return sign | static_cast<std::uint32_t>(code);
}

// The value of a code of the format encode<E, M, Finite>() writes. Exact.
template <int E, int M, bool Finite = false> inline double decode(std::uint32_t code) {
    const std::uint32_t magnitude = code & ((1u << (E + M)) - 1);
    const bool negative = (code >> (E + M)) & 1;
    const std::uint32_t exponent = magnitude >> M;
    const std::uint32_t mantissa = magnitude & ((1u << M) - 1);
    constexpr std::uint32_t top = (1u << E) - 1;
    double value;
    if (Finite ? magnitude == (1u << (E + M)) - 1 : (exponent == top && mantissa != 0)) {
        value = std::numeric_limits<double>::quiet_NaN();
    } else if (!Finite && exponent == top) {
        value = std::numeric_limits<double>::infinity();
    } else if (exponent == 0) {
        value = std::ldexp(static_cast<double>(mantissa), 2 - (1 << (E - 1)) - M);
    } else {
        value = std::ldexp(static_cast<double>(mantissa | (1u << M)), static_cast<int>(exponent) + 1 - (1 << (E - 1)) - M);
    }
    return negative ? -value : value;
}

// A 64-bit integer as a double whose last bit is set where anything was lost ("round to odd"): rounding that
// again to a narrower format gives what one rounding of the integer would (Boldo and Melquiond, 2008).
inline double odd_double(unsigned long long magnitude) {
    if (magnitude >> 53) {
        const bool lost = (magnitude & 0x7ff) != 0;
        magnitude = ((magnitude >> 11) | (lost ? 1 : 0)) << 11;
    }
    return static_cast<double>(magnitude);
}
inline double odd_double(long long value) {
    const unsigned long long bits = static_cast<unsigned long long>(value);
    const double magnitude = odd_double(value < 0 ? 0ull - bits : bits);
    return value < 0 ? -magnitude : magnitude;
}

// a * b + c with the last bit of the double result set where it is inexact. For a and b of at most 24 significant bits.
inline double odd_fma(float a, float b, float c) {
    const double product = static_cast<double>(a) * static_cast<double>(b);  // exact: 48 bits
    const double addend = c;
    const double sum = opaque(product + addend);
    const double back = opaque(sum - product);
    const double error = opaque(product - opaque(sum - back)) + opaque(addend - back);  // Knuth's TwoSum
    if (!(error != 0.0) || !std::isfinite(sum)) {
        return sum;
    }
    std::uint64_t bits = bits_of(sum);
    if ((bits & 1) == 0) {
        // sum is even and inexact: step to the odd neighbour on the side of the exact value
        bits = (error > 0) == (sum > 0) ? bits + 1 : bits - 1;
    }
    return double_of_bits(bits);
}

// ---- half (IEEE binary16)
inline float half_to_float(std::uint16_t code) {
#if defined(__F16C__)
    return _cvtsh_ss(code);
#else
    const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000u) << 16;
    const std::uint32_t magnitude = code & 0x7fffu;
    if (magnitude >= 0x7c00u) {
        return float_of_bits(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    }
    if (magnitude >= 0x400u) {
        return float_of_bits(sign | ((magnitude << 13) + 0x38000000u));
    }
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;  // exact
    return float_of_bits(sign | bits_of(subnormal));
#endif
}
inline std::uint16_t float_to_half(float value) {
    if (value != value) {
        return 0x7fffu;  // the canonical NaN of cvt.rn.f16.f32
    }
#if defined(__F16C__)
    return static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
#else
    return static_cast<std::uint16_t>(encode<5, 10>(value, Round::nearest, 0x7fffu));
#endif
}
template <Round R> inline std::uint16_t double_to_half(double value) {
    return static_cast<std::uint16_t>(encode<5, 10>(value, R, 0x7fffu));
}

// ---- bfloat16
inline float bfloat16_to_float(std::uint16_t code) { return float_of_bits(static_cast<std::uint32_t>(code) << 16); }
inline std::uint16_t float_to_bfloat16(float value) {
    if (value != value) {
        return 0x7fffu;
    }
    const std::uint32_t bits = bits_of(value);
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
template <Round R> inline std::uint16_t double_to_bfloat16(double value) {
    return static_cast<std::uint16_t>(encode<8, 7>(value, R, 0x7fffu));
}

// ---- tf32: a float whose lower 13 mantissa bits are zero
inline float to_tf32(float value) {  // cvt.rna.tf32.f32: to nearest, ties away from zero
    const std::uint32_t bits = bits_of(value);
    if ((bits & 0x7f800000u) == 0x7f800000u) {
        return value != value ? float_of_bits(0x7fffffffu) : value;
    }
    return float_of_bits((bits + 0x1000u) & 0xffffe000u);
}
inline float nearest_tf32(float value) {  // cvt.rn.tf32.f32: to nearest, ties to even
    const std::uint32_t bits = bits_of(value);
    if ((bits & 0x7f800000u) == 0x7f800000u) {
        return value != value ? float_of_bits(0x7fffffffu) : value;
    }
    return float_of_bits((bits + 0xfffu + ((bits >> 13) & 1u)) & 0xffffe000u);
}
inline float truncated_tf32(float value) { return float_of_bits(bits_of(value) & 0xffffe000u); }

// ---- floating point to integer, as cvt.{rni,rzi,rmi,rpi} does: saturating; NaN becomes 0, or the smallest signed (1 << 63)
// pattern where the source is a double or the target has 64 bits (PTX ISA, "cvt").
template <Round R, class T> inline T round_to_integral(T value) {
    return R == Round::nearest ? std::nearbyint(value)
           : R == Round::zero  ? std::trunc(value)
           : R == Round::up    ? std::ceil(value)
                               : std::floor(value);
}
template <class To, Round R, class From> inline To to_integer(From value) {
    if (value != value) {
        if (sizeof(To) == 8 || sizeof(From) == 8) {
            return static_cast<To>(1ull << (8 * sizeof(To) - 1));
        }
        return To(0);
    }
    const From integral = round_to_integral<R>(value);
    // 2^bits is a power of two and so exact in every From; the largest To itself often is not.
    const From limit = std::ldexp(From(1), static_cast<int>(std::numeric_limits<To>::digits));
    if (integral >= limit) {
        return std::numeric_limits<To>::max();
    }
    if (integral < static_cast<From>(std::numeric_limits<To>::min())) {
        return std::numeric_limits<To>::min();
    }
    return static_cast<To>(integral);
}

// A member of a template's signature that takes no part in deduction.
template <class T> struct Same { using type = T; };

}  // namespace hostcuda

#endif

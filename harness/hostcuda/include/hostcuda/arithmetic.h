// Shifts and conversions as a GPU does them. In C++ a shift by the width of its operand or more, and the conversion of a number that the
// integer type can't hold, are undefined; the translation writes `a << n` as `a << shift << n` and `(int)x` as `(int)(Converted<int>)x`.
#pragma once
#include <concepts>
#include <limits>
#include <type_traits>

namespace hostcuda {

#define HOSTCUDA_INLINE __attribute__((always_inline)) constexpr

struct Shift {};
inline constexpr Shift shift{};
template <class T> struct Shifted { T value; };       // the left operand of a shift; a reference if it is no number
template <class N> struct ShiftCount { N value; };    // the right operand of a compound one

template <class T> concept ShiftOperand = std::integral<T> || (std::is_enum_v<T> && std::convertible_to<T, int>);

// PTX, shl and shr: counts above the width are the width.
template <class T, class N> HOSTCUDA_INLINE auto shifted_left(T value, N count) {
    using Result = decltype(+value);
    const auto all = static_cast<std::make_unsigned_t<Result>>(value);
    return static_cast<std::make_unsigned_t<decltype(+count)>>(+count) < 8 * sizeof(Result) ? static_cast<Result>(all << (+count & (8 * sizeof(Result) - 1))) : Result{0};
}
template <class T, class N> HOSTCUDA_INLINE auto shifted_right(T value, N count) {
    using Result = decltype(+value);
    constexpr auto last = 8 * sizeof(Result) - 1;
    const bool within = static_cast<std::make_unsigned_t<decltype(+count)>>(+count) <= last;
    if constexpr (std::is_signed_v<Result>) return static_cast<Result>(+value >> (within ? +count & last : last));
    else return within ? static_cast<Result>(+value >> (+count & last)) : Result{0};
}

template <ShiftOperand T> HOSTCUDA_INLINE Shifted<T> operator<<(T value, Shift) { return {value}; }
template <ShiftOperand T> HOSTCUDA_INLINE Shifted<T> operator>>(T value, Shift) { return {value}; }
template <class T> requires(!ShiftOperand<std::remove_cvref_t<T>>) HOSTCUDA_INLINE Shifted<T&&> operator<<(T&& value, Shift) { return {static_cast<T&&>(value)}; }
template <class T> requires(!ShiftOperand<std::remove_cvref_t<T>>) HOSTCUDA_INLINE Shifted<T&&> operator>>(T&& value, Shift) { return {static_cast<T&&>(value)}; }
template <ShiftOperand T, class N> HOSTCUDA_INLINE decltype(auto) operator<<(Shifted<T> left, N count) {
    if constexpr (ShiftOperand<N>) return shifted_left(left.value, count);
    else return left.value << count;
}
template <ShiftOperand T, class N> HOSTCUDA_INLINE decltype(auto) operator>>(Shifted<T> left, N count) {
    if constexpr (ShiftOperand<N>) return shifted_right(left.value, count);
    else return left.value >> count;
}
template <class T, class N> requires std::is_reference_v<T> HOSTCUDA_INLINE decltype(auto) operator<<(Shifted<T> left, N&& count) { return static_cast<T>(left.value) << static_cast<N&&>(count); }
template <class T, class N> requires std::is_reference_v<T> HOSTCUDA_INLINE decltype(auto) operator>>(Shifted<T> left, N&& count) { return static_cast<T>(left.value) >> static_cast<N&&>(count); }

template <class N> HOSTCUDA_INLINE ShiftCount<N> operator<<=(Shift, N count) { return {count}; }
template <class N> HOSTCUDA_INLINE ShiftCount<N> operator>>=(Shift, N count) { return {count}; }
template <class T, class N> HOSTCUDA_INLINE decltype(auto) operator<<=(T& left, ShiftCount<N> count) {
    if constexpr (ShiftOperand<std::remove_cv_t<T>> && ShiftOperand<N>) return left = static_cast<std::remove_cv_t<T>>(shifted_left(left, count.value));
    else return left <<= count.value;
}
template <class T, class N> HOSTCUDA_INLINE decltype(auto) operator>>=(T& left, ShiftCount<N> count) {
    if constexpr (ShiftOperand<std::remove_cv_t<T>> && ShiftOperand<N>) return left = static_cast<std::remove_cv_t<T>>(shifted_right(left, count.value));
    else return left >>= count.value;
}

// PTX, cvt.rzi: the nearest number that there is; NaN is the highest bit alone, but 0 from float to 32 bits. Types below 32 bits are cut from 32.
template <class T, class F> HOSTCUDA_INLINE T saturated(F value) {
    using Wide = std::conditional_t<(sizeof(T) > 4), T, std::conditional_t<std::is_signed_v<T>, int, unsigned>>;
    using Limits = std::numeric_limits<Wide>;
    constexpr F beyond = F(Limits::max() / 2 + 1) * 2;  // a power of two
    if (value != value) return sizeof(Wide) == 4 && std::same_as<F, float> ? T{0} : static_cast<T>(1ull << (8 * sizeof(Wide) - 1));
    if (value >= beyond) return static_cast<T>(Limits::max());
    if (value < F(Limits::min())) return static_cast<T>(Limits::min());
    return static_cast<T>(static_cast<Wide>(value));
}

template <class T> struct Converted {
    T value;
    template <class U> HOSTCUDA_INLINE explicit Converted(U from) : value(of(from)) {}
    HOSTCUDA_INLINE operator T() const { return value; }

private:
    template <class U> static HOSTCUDA_INLINE T of(U from) {
        if constexpr (std::same_as<U, float> || std::same_as<U, double>) return saturated<T>(from);
        else return (T)from;
    }
};

#undef HOSTCUDA_INLINE

}  // namespace hostcuda

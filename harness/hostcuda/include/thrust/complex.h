// Complex numbers, in host and device code, and what else Thrust's own header includes. Sums, products and quotients are Thrust's own; functions are the standard library's.
#pragma once
#include <cmath>
#include <complex>
#include <istream>
#include <ostream>
#include <type_traits>

#include "../cuda/cmath"
#include "../cuda/std/array"
#include "../cuda/std/cfloat"
#include "../cuda/std/climits"
#include "../cuda/std/cmath"
#include "../cuda/std/concepts"
#include "../cuda/std/cstddef"
#include "../cuda/std/cstdint"
#include "../cuda/std/cstring"
#include "../cuda/std/initializer_list"
#include "../cuda/std/iterator"
#include "../cuda/std/limits"
#include "../cuda/std/type_traits"
#include "../cuda/std/utility"
#include "../cuda_fp8.h"
#include "iterator/iterator_traits.h"
#include "version.h"

namespace thrust {
template <class T> struct alignas(2 * sizeof(T)) complex {
    using value_type = T;
    constexpr complex(const T& re = T(), const T& im = T()) : re_(re), im_(im) {}
    constexpr complex(const complex&) = default;
    template <class U> requires(!std::is_same_v<T, U>) constexpr complex(const complex<U>& z) : re_(static_cast<T>(z.real())), im_(static_cast<T>(z.imag())) {}
    template <class U> constexpr complex(const std::complex<U>& z) : re_(static_cast<T>(z.real())), im_(static_cast<T>(z.imag())) {}
    constexpr complex& operator=(const complex&) = default;
    constexpr complex& operator=(const T& re) { return re_ = re, im_ = T(), *this; }
    template <class U> constexpr complex& operator=(const complex<U>& z) { return *this = complex(z); }
    template <class U> constexpr complex& operator=(const std::complex<U>& z) { return *this = complex(z); }
    constexpr T real() const { return re_; }
    constexpr T imag() const { return im_; }
    constexpr void real(T re) { re_ = re; }
    constexpr void imag(T im) { im_ = im; }
    operator std::complex<T>() const { return {re_, im_}; }
    template <class U> complex& operator+=(const complex<U>& z) { return *this = *this + z; }
    template <class U> complex& operator-=(const complex<U>& z) { return *this = *this - z; }
    template <class U> complex& operator*=(const complex<U>& z) { return *this = *this * z; }
    template <class U> complex& operator/=(const complex<U>& z) { return *this = *this / z; }
    template <class U> requires std::is_arithmetic_v<U> complex& operator+=(const U& x) { return *this = *this + x; }
    template <class U> requires std::is_arithmetic_v<U> complex& operator-=(const U& x) { return *this = *this - x; }
    template <class U> requires std::is_arithmetic_v<U> complex& operator*=(const U& x) { return *this = *this * x; }
    template <class U> requires std::is_arithmetic_v<U> complex& operator/=(const U& x) { return *this = *this / x; }

private:
    T re_, im_;
};

namespace detail {
template <class T, class U> using complex_of = complex<std::common_type_t<T, U>>;
template <class T> concept Real = std::is_arithmetic_v<T>;
template <class T> std::complex<T> standard(const complex<T>& z) { return {z.real(), z.imag()}; }
}  // namespace detail

template <class T, class U> constexpr auto operator+(const complex<T>& a, const complex<U>& b) { return detail::complex_of<T, U>(a.real() + b.real(), a.imag() + b.imag()); }
template <class T, class U> constexpr auto operator-(const complex<T>& a, const complex<U>& b) { return detail::complex_of<T, U>(a.real() - b.real(), a.imag() - b.imag()); }
template <class T, class U> constexpr auto operator*(const complex<T>& a, const complex<U>& b) {
    return detail::complex_of<T, U>(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
}
// Scaled by the divisor's size, so that no square of it overflows.
template <class T, class U> auto operator/(const complex<T>& a, const complex<U>& b) {
    using R = std::common_type_t<T, U>;
    const R scale = R(1) / (std::abs(static_cast<R>(b.real())) + std::abs(static_cast<R>(b.imag())));
    const R x = a.real() * scale, y = a.imag() * scale, u = b.real() * scale, v = b.imag() * scale;
    const R inverse = R(1) / (u * u + v * v);
    return complex<R>((x * u + y * v) * inverse, (y * u - x * v) * inverse);
}
template <class T, detail::Real U> constexpr auto operator+(const complex<T>& a, const U& b) { return detail::complex_of<T, U>(a.real() + b, a.imag()); }
template <class T, detail::Real U> constexpr auto operator+(const U& a, const complex<T>& b) { return detail::complex_of<T, U>(a + b.real(), b.imag()); }
template <class T, detail::Real U> constexpr auto operator-(const complex<T>& a, const U& b) { return detail::complex_of<T, U>(a.real() - b, a.imag()); }
template <class T, detail::Real U> constexpr auto operator-(const U& a, const complex<T>& b) { return detail::complex_of<T, U>(a - b.real(), -b.imag()); }
template <class T, detail::Real U> constexpr auto operator*(const complex<T>& a, const U& b) { return detail::complex_of<T, U>(a.real() * b, a.imag() * b); }
template <class T, detail::Real U> constexpr auto operator*(const U& a, const complex<T>& b) { return detail::complex_of<T, U>(a * b.real(), a * b.imag()); }
template <class T, detail::Real U> constexpr auto operator/(const complex<T>& a, const U& b) { return detail::complex_of<T, U>(a.real() / b, a.imag() / b); }
template <class T, detail::Real U> auto operator/(const U& a, const complex<T>& b) { return complex<U>(a) / b; }
template <class T> constexpr complex<T> operator+(const complex<T>& z) { return z; }
template <class T> constexpr complex<T> operator-(const complex<T>& z) { return {-z.real(), -z.imag()}; }
template <class T, class U> constexpr bool operator==(const complex<T>& a, const complex<U>& b) { return a.real() == b.real() && a.imag() == b.imag(); }
template <class T, class U> constexpr bool operator==(const complex<T>& a, const std::complex<U>& b) { return a.real() == b.real() && a.imag() == b.imag(); }
template <class T, detail::Real U> constexpr bool operator==(const complex<T>& a, const U& b) { return a.real() == b && a.imag() == T(); }

template <class T> T abs(const complex<T>& z) { return std::abs(detail::standard(z)); }
template <class T> T arg(const complex<T>& z) { return std::arg(detail::standard(z)); }
template <class T> constexpr T norm(const complex<T>& z) { return z.real() * z.real() + z.imag() * z.imag(); }
template <class T> constexpr complex<T> conj(const complex<T>& z) { return {z.real(), -z.imag()}; }
template <class T> complex<T> proj(const complex<T>& z) { return std::proj(detail::standard(z)); }
template <class T, class U> detail::complex_of<T, U> polar(const T& size, const U& angle) { return {size * std::cos(angle), size * std::sin(angle)}; }
template <class T> complex<T> polar(const T& size) { return {size, T()}; }
#define HOSTCUDA_COMPLEX(name) \
    template <class T> complex<T> name(const complex<T>& z) { return std::name(detail::standard(z)); }
HOSTCUDA_COMPLEX(exp)
HOSTCUDA_COMPLEX(log)
HOSTCUDA_COMPLEX(log10)
HOSTCUDA_COMPLEX(sqrt)
HOSTCUDA_COMPLEX(sin)
HOSTCUDA_COMPLEX(cos)
HOSTCUDA_COMPLEX(tan)
HOSTCUDA_COMPLEX(sinh)
HOSTCUDA_COMPLEX(cosh)
HOSTCUDA_COMPLEX(tanh)
HOSTCUDA_COMPLEX(asin)
HOSTCUDA_COMPLEX(acos)
HOSTCUDA_COMPLEX(atan)
HOSTCUDA_COMPLEX(asinh)
HOSTCUDA_COMPLEX(acosh)
HOSTCUDA_COMPLEX(atanh)
#undef HOSTCUDA_COMPLEX
template <class T, class U> auto pow(const complex<T>& z, const complex<U>& e) {
    using C = detail::complex_of<T, U>;
    return thrust::exp(thrust::log(C(z)) * C(e));
}
template <class T, detail::Real U> auto pow(const complex<T>& z, const U& e) {
    using C = detail::complex_of<T, U>;
    return thrust::exp(thrust::log(C(z)) * static_cast<typename C::value_type>(e));
}
template <class T, detail::Real U> auto pow(const U& x, const complex<T>& e) { return thrust::pow(complex<U>(x), e); }

template <class T, class C, class R> std::basic_ostream<C, R>& operator<<(std::basic_ostream<C, R>& out, const complex<T>& z) { return out << detail::standard(z); }
template <class T, class C, class R> std::basic_istream<C, R>& operator>>(std::basic_istream<C, R>& in, complex<T>& z) {
    std::complex<T> read;
    in >> read;
    z = read;
    return in;
}
}  // namespace thrust

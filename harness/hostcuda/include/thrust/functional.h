// Operators. Those of the standard library are its own; placeholders build functions of up to ten arguments.
#pragma once
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../cuda/functional"
#include "version.h"

namespace thrust {
using ::std::bit_and;
using ::std::bit_or;
using ::std::bit_xor;
using ::std::divides;
using ::std::equal_to;
using ::std::greater;
using ::std::greater_equal;
using ::std::less;
using ::std::less_equal;
using ::std::logical_and;
using ::std::logical_not;
using ::std::logical_or;
using ::std::minus;
using ::std::modulus;
using ::std::multiplies;
using ::std::negate;
using ::std::not_equal_to;
using ::std::not_fn;
using ::std::plus;
using ::cuda::maximum;
using ::cuda::minimum;

template <class T = void> struct square {
    constexpr T operator()(const T& x) const { return x * x; }
};
template <> struct square<void> {
    using is_transparent = void;
    template <class T> constexpr T operator()(const T& x) const { return x * x; }
};
template <class T = void, class U = void> struct project1st {
    constexpr const T& operator()(const T& a, const U&) const { return a; }
};
template <> struct project1st<void, void> {
    using is_transparent = void;
    template <class T, class U> constexpr T operator()(const T& a, const U&) const { return a; }
};
template <class T = void, class U = void> struct project2nd {
    constexpr const U& operator()(const T&, const U& b) const { return b; }
};
template <> struct project2nd<void, void> {
    using is_transparent = void;
    template <class T, class U> constexpr U operator()(const T&, const U& b) const { return b; }
};

namespace detail {
struct PlaceholderBase {};
template <class E> concept Placeholder = std::is_base_of_v<PlaceholderBase, std::remove_cvref_t<E>>;
template <class F> struct Expression : PlaceholderBase {
    F function;
    constexpr explicit Expression(F f) : function(f) {}
    template <class... A> constexpr decltype(auto) operator()(A&&... a) const { return function(std::forward<A>(a)...); }
    template <class E> constexpr auto operator=(const E& other) const;
};
template <class E, class... A> constexpr decltype(auto) evaluated(const E& e, A&&... a) {
    if constexpr (Placeholder<E>) return e(std::forward<A>(a)...);
    else return e;
}
template <class F, class... E> constexpr auto composed(F f, E... e) {
    const auto call = [f, e...](auto&&... a) -> decltype(auto) { return f(evaluated(e, a...)...); };
    return Expression<decltype(call)>(call);
}
template <class F> template <class E> constexpr auto Expression<F>::operator=(const E& other) const {
    return composed([](auto& a, const auto& b) -> auto& { return a = b; }, *this, other);
}
#define HOSTCUDA_PLACEHOLDER_BINARY(op)                                                                   \
    template <class A, class B> requires(Placeholder<A> || Placeholder<B>)                                \
    constexpr auto operator op(const A& a, const B& b) {                                                  \
        return composed([](const auto& x, const auto& y) { return x op y; }, a, b);                       \
    }
HOSTCUDA_PLACEHOLDER_BINARY(+) HOSTCUDA_PLACEHOLDER_BINARY(-) HOSTCUDA_PLACEHOLDER_BINARY(*) HOSTCUDA_PLACEHOLDER_BINARY(/)
HOSTCUDA_PLACEHOLDER_BINARY(%) HOSTCUDA_PLACEHOLDER_BINARY(==) HOSTCUDA_PLACEHOLDER_BINARY(!=) HOSTCUDA_PLACEHOLDER_BINARY(<)
HOSTCUDA_PLACEHOLDER_BINARY(<=) HOSTCUDA_PLACEHOLDER_BINARY(>) HOSTCUDA_PLACEHOLDER_BINARY(>=) HOSTCUDA_PLACEHOLDER_BINARY(&&)
HOSTCUDA_PLACEHOLDER_BINARY(||) HOSTCUDA_PLACEHOLDER_BINARY(&) HOSTCUDA_PLACEHOLDER_BINARY(|) HOSTCUDA_PLACEHOLDER_BINARY(^)
HOSTCUDA_PLACEHOLDER_BINARY(<<) HOSTCUDA_PLACEHOLDER_BINARY(>>)
#undef HOSTCUDA_PLACEHOLDER_BINARY
#define HOSTCUDA_PLACEHOLDER_ASSIGN(op)                                                                   \
    template <class F, class B> constexpr auto operator op(const Expression<F>& a, const B& b) {          \
        return composed([](auto& x, const auto& y) -> auto& { return x op y; }, a, b);                    \
    }
HOSTCUDA_PLACEHOLDER_ASSIGN(+=) HOSTCUDA_PLACEHOLDER_ASSIGN(-=) HOSTCUDA_PLACEHOLDER_ASSIGN(*=) HOSTCUDA_PLACEHOLDER_ASSIGN(/=)
#undef HOSTCUDA_PLACEHOLDER_ASSIGN
template <Placeholder A> constexpr auto operator-(const A& a) { return composed([](const auto& x) { return -x; }, a); }
template <Placeholder A> constexpr auto operator+(const A& a) { return composed([](const auto& x) { return +x; }, a); }
template <Placeholder A> constexpr auto operator!(const A& a) { return composed([](const auto& x) { return !x; }, a); }
template <Placeholder A> constexpr auto operator~(const A& a) { return composed([](const auto& x) { return ~x; }, a); }
template <std::size_t N> struct Argument {
    template <class... A> constexpr auto& operator()(A&&... a) const { return std::get<N>(std::forward_as_tuple(static_cast<std::remove_reference_t<A>&>(a)...)); }
};
}  // namespace detail

namespace placeholders {
inline constexpr detail::Expression<detail::Argument<0>> _1{{}};
inline constexpr detail::Expression<detail::Argument<1>> _2{{}};
inline constexpr detail::Expression<detail::Argument<2>> _3{{}};
inline constexpr detail::Expression<detail::Argument<3>> _4{{}};
inline constexpr detail::Expression<detail::Argument<4>> _5{{}};
inline constexpr detail::Expression<detail::Argument<5>> _6{{}};
inline constexpr detail::Expression<detail::Argument<6>> _7{{}};
inline constexpr detail::Expression<detail::Argument<7>> _8{{}};
inline constexpr detail::Expression<detail::Argument<8>> _9{{}};
inline constexpr detail::Expression<detail::Argument<9>> _10{{}};
}  // namespace placeholders
}  // namespace thrust

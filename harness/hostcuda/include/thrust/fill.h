// Ranges made from nothing else: of one value, of a sequence, of what a function gives.
#pragma once
#include "detail/algorithm.h"

namespace thrust {
namespace detail {
template <class In, class N, class T> In do_fill_n(const Execution& where, At at, In first, N n, T value) {
    each(where, "thrust::fill", at, static_cast<std::int64_t>(n), [to = raw(first), value](std::int64_t i) mutable { to[i] = value; });
    return first + n;
}
template <class In, class T> void do_fill(const Execution& where, At at, In first, In last, T value) { do_fill_n(where, at, first, length(first, last), value); }
template <class In, class T> void do_uninitialized_fill(const Execution& where, At at, In first, In last, T value) { do_fill(where, at, first, last, value); }
template <class In, class N, class T> In do_uninitialized_fill_n(const Execution& where, At at, In first, N n, T value) { return do_fill_n(where, at, first, n, value); }
template <class In, class T, class S> void do_sequence(const Execution& where, At at, In first, In last, T start, S step) {
    each(where, "thrust::sequence", at, length(first, last), [to = raw(first), start, step](std::int64_t i) mutable { to[i] = static_cast<T>(start + step * static_cast<T>(i)); });
}
template <class In, class T> void do_sequence(const Execution& where, At at, In first, In last, T start) { do_sequence(where, at, first, last, start, T(1)); }
template <class In> void do_sequence(const Execution& where, At at, In first, In last) { do_sequence(where, at, first, last, item_of<In>(0)); }
template <class In, class F> void do_tabulate(const Execution& where, At at, In first, In last, F f) {
    using Index = typename std::iterator_traits<In>::difference_type;
    each(where, "thrust::tabulate", at, length(first, last), [to = raw(first), f](std::int64_t i) mutable { to[i] = f(static_cast<Index>(i)); });
}
template <class In, class N, class F> In do_generate_n(const Execution& where, At at, In first, N n, F f) {
    each(where, "thrust::generate", at, static_cast<std::int64_t>(n), [to = raw(first), f](std::int64_t i) mutable { to[i] = f(); });
    return first + n;
}
template <class In, class F> void do_generate(const Execution& where, At at, In first, In last, F f) { do_generate_n(where, at, first, length(first, last), f); }
}  // namespace detail
HOSTCUDA_THRUST(fill, (class In, class T), (In first, In last, const T& value), (first, last, value), (first))
HOSTCUDA_THRUST(fill_n, (class In, class N, class T), (In first, N n, const T& value), (first, n, value), (first))
HOSTCUDA_THRUST(uninitialized_fill, (class In, class T), (In first, In last, const T& value), (first, last, value), (first))
HOSTCUDA_THRUST(uninitialized_fill_n, (class In, class N, class T), (In first, N n, const T& value), (first, n, value), (first))
HOSTCUDA_THRUST(sequence, (class In), (In first, In last), (first, last), (first))
HOSTCUDA_THRUST(sequence, (class In, class T), (In first, In last, T start), (first, last, start), (first))
HOSTCUDA_THRUST(sequence, (class In, class T, class S), (In first, In last, T start, S step), (first, last, start, step), (first))
HOSTCUDA_THRUST(tabulate, (class In, class F), (In first, In last, F f), (first, last, f), (first))
HOSTCUDA_THRUST(generate, (class In, class F), (In first, In last, F f), (first, last, f), (first))
HOSTCUDA_THRUST(generate_n, (class In, class N, class F), (In first, N n, F f), (first, n, f), (first))
}  // namespace thrust

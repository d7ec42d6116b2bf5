// Places in sorted ranges, of one value or of many.
#pragma once
#include "detail/algorithm.h"
#include "functional.h"
#include "pair.h"

namespace thrust {
namespace detail {

// How many of the first `n` items come before `value`, or before whatever is above it.
template <class It, class T, class F> std::int64_t lower(const It& in, std::int64_t n, const T& value, F& less) {
    std::int64_t low = 0;
    while (n > 0) {
        const std::int64_t half = n / 2;
        if (less(in[low + half], value)) low += half + 1, n -= half + 1;
        else n = half;
    }
    return low;
}
template <class It, class T, class F> std::int64_t upper(const It& in, std::int64_t n, const T& value, F& less) {
    std::int64_t low = 0;
    while (n > 0) {
        const std::int64_t half = n / 2;
        if (!less(value, in[low + half])) low += half + 1, n -= half + 1;
        else n = half;
    }
    return low;
}
template <class It, class T, class F> bool holds(const It& in, std::int64_t n, const T& value, F& less) {
    const std::int64_t place = lower(in, n, value, less);
    return place < n && !less(value, in[place]);
}

#define HOSTCUDA_SEARCH(name, find, one, made)                                                                                                             \
    template <class In, class T, class F> auto do_##name(const Execution& where, At at, In first, In last, T value, F less) {                               \
        const auto n = length(first, last);                                                                                                                \
        return one(answer(where, "thrust::" #name, at, [n, in = raw(first), value, less]() mutable { return find(in, n, value, less); }));                  \
    }                                                                                                                                                      \
    template <class In, class Values, class Out, class F>                                                                                                  \
    Out do_##name##_of(const Execution& where, At at, In first, In last, Values values, Values values_end, Out out, F less) {                              \
        const auto n = length(first, last), m = length(values, values_end);                                                                                \
        each(where, "thrust::" #name, at, m, [n, in = raw(first), of = raw(values), to = raw(out), less](std::int64_t i) mutable {                         \
            const item_of<Values> value = of[i];                                                                                                           \
            to[i] = static_cast<made>(find(in, n, value, less));                                                                                           \
        });                                                                                                                                                \
        return out + m;                                                                                                                                    \
    }
HOSTCUDA_SEARCH(lower_bound, lower, [first](std::int64_t n) { return first + n; }, std::int64_t)
HOSTCUDA_SEARCH(upper_bound, upper, [first](std::int64_t n) { return first + n; }, std::int64_t)
HOSTCUDA_SEARCH(binary_search, holds, [](bool found) { return found; }, bool)
#undef HOSTCUDA_SEARCH

template <class In, class T, class F> pair<In, In> do_equal_range(const Execution& where, At at, In first, In last, T value, F less) {
    const auto n = length(first, last);
    const auto found = answer(where, "thrust::equal_range", at, [n, in = raw(first), value, less]() mutable {
        return pair<std::int64_t, std::int64_t>(lower(in, n, value, less), upper(in, n, value, less));
    });
    return {first + found.first, first + found.second};
}
template <class In, class T> pair<In, In> do_equal_range(const Execution& where, At at, In first, In last, T value) {
    return do_equal_range(where, at, first, last, value, thrust::less<>());
}

}  // namespace detail

HOSTCUDA_THRUST(equal_range, (class In, class T), (In first, In last, const T& value), (first, last, value), (first))
HOSTCUDA_THRUST(equal_range, (class In, class T, class F), (In first, In last, const T& value, F less), (first, last, value, less), (first))

#define HOSTCUDA_SEARCH(name)                                                                                                                               \
    HOSTCUDA_THRUST(name, (class In, class T, class F), (In first, In last, const T& value, F less), (first, last, value, less), (first))                   \
    template <detail::Policy Where, class In, class T> auto name(const Where& where, In first, In last, const T& value, HOSTCUDA_AT) {                      \
        return thrust::name(where, first, last, value, thrust::less<>(), at);                                                                               \
    }                                                                                                                                                       \
    template <class In, class T> requires(!detail::Policy<In>) auto name(In first, In last, const T& value, HOSTCUDA_AT) {                                  \
        return thrust::name(first, last, value, thrust::less<>(), at);                                                                                      \
    }                                                                                                                                                       \
    template <detail::Policy Where, class In, class Values, class Out, class F>                                                                             \
    Out name(const Where& where, In first, In last, Values values, Values values_end, Out out, F less, HOSTCUDA_AT) {                                       \
        return detail::do_##name##_of(detail::given(where, "thrust::" #name, at, first, values, out), at, first, last, values, values_end, out, less);      \
    }                                                                                                                                                       \
    template <detail::Policy Where, class In, class Values, class Out>                                                                                      \
    Out name(const Where& where, In first, In last, Values values, Values values_end, Out out, HOSTCUDA_AT) {                                               \
        return thrust::name(where, first, last, values, values_end, out, thrust::less<>(), at);                                                             \
    }                                                                                                                                                       \
    template <class In, class Values, class Out, class F> requires(!detail::Policy<In>)                                                                     \
    Out name(In first, In last, Values values, Values values_end, Out out, F less, HOSTCUDA_AT) {                                                           \
        return detail::do_##name##_of(detail::chosen("thrust::" #name, at, first, values, out), at, first, last, values, values_end, out, less);            \
    }                                                                                                                                                       \
    template <class In, class Values, class Out> requires(!detail::Policy<In>)                                                                              \
    Out name(In first, In last, Values values, Values values_end, Out out, HOSTCUDA_AT) {                                                                   \
        return thrust::name(first, last, values, values_end, out, thrust::less<>(), at);                                                                    \
    }
HOSTCUDA_SEARCH(lower_bound)
HOSTCUDA_SEARCH(upper_bound)
HOSTCUDA_SEARCH(binary_search)
#undef HOSTCUDA_SEARCH
}  // namespace thrust

#pragma once
#include "detail/algorithm.h"

namespace thrust {
namespace detail {
template <class In, class S, class P, class T> void do_replace_if(const Execution& where, At at, In first, In last, S stencil, P wanted, T value) {
    each(where, "thrust::replace_if", at, length(first, last), [to = raw(first), by = raw(stencil), wanted, value](std::int64_t i) mutable {
        auto&& mark = by[i];
        if (wanted(mark)) to[i] = value;
    });
}
template <class In, class P, class T> void do_replace_if(const Execution& where, At at, In first, In last, P wanted, T value) {
    do_replace_if(where, at, first, last, first, wanted, value);
}
template <class In, class T> void do_replace(const Execution& where, At at, In first, In last, T old, T value) {
    do_replace_if(where, at, first, last, [old](const auto& item) { return item == old; }, value);
}
template <class In, class Out, class P, class T> Out do_replace_copy_if(const Execution& where, At at, In first, In last, Out out, P wanted, T value) {
    const auto n = length(first, last);
    each(where, "thrust::replace_copy_if", at, n, [in = raw(first), to = raw(out), wanted, value](std::int64_t i) mutable {
        const item_of<In> item = in[i];
        if (wanted(item)) to[i] = value;
        else to[i] = item;
    });
    return out + n;
}
template <class In, class Out, class T> Out do_replace_copy(const Execution& where, At at, In first, In last, Out out, T old, T value) {
    return do_replace_copy_if(where, at, first, last, out, [old](const auto& item) { return item == old; }, value);
}
}  // namespace detail
HOSTCUDA_THRUST(replace_if, (class In, class P, class T), (In first, In last, P wanted, const T& value), (first, last, wanted, value), (first))
HOSTCUDA_THRUST(replace_if, (class In, class S, class P, class T), (In first, In last, S stencil, P wanted, const T& value), (first, last, stencil, wanted, value), (first, stencil))
HOSTCUDA_THRUST(replace, (class In, class T), (In first, In last, const T& old, const T& value), (first, last, old, value), (first))
HOSTCUDA_THRUST(replace_copy_if, (class In, class Out, class P, class T), (In first, In last, Out out, P wanted, const T& value), (first, last, out, wanted, value), (first, out))
HOSTCUDA_THRUST(replace_copy, (class In, class Out, class T), (In first, In last, Out out, const T& old, const T& value), (first, last, out, old, value), (first, out))
}  // namespace thrust

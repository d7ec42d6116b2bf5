// Item by item: functions of one range or two.
#pragma once
#include "detail/algorithm.h"
#include "functional.h"

namespace thrust {
namespace detail {

template <class In, class Out, class F> Out do_transform(const Execution& where, At at, In first, In last, Out out, F f) {
    const auto n = length(first, last);
    each(where, "thrust::transform", at, n, [in = raw(first), to = raw(out), f](std::int64_t i) mutable {
        auto&& item = in[i];
        to[i] = f(item);
    });
    return out + n;
}
template <class In, class In2, class Out, class F> Out do_transform(const Execution& where, At at, In first, In last, In2 second, Out out, F f) {
    const auto n = length(first, last);
    each(where, "thrust::transform", at, n, [in = raw(first), other = raw(second), to = raw(out), f](std::int64_t i) mutable {
        auto&& a = in[i];
        auto&& b = other[i];
        to[i] = f(a, b);
    });
    return out + n;
}
template <class In, class S, class Out, class F, class P> Out do_transform_if(const Execution& where, At at, In first, In last, S stencil, Out out, F f, P wanted) {
    const auto n = length(first, last);
    each(where, "thrust::transform_if", at, n, [in = raw(first), by = raw(stencil), to = raw(out), f, wanted](std::int64_t i) mutable {
        auto&& mark = by[i];
        if (!wanted(mark)) return;
        auto&& item = in[i];
        to[i] = f(item);
    });
    return out + n;
}
template <class In, class Out, class F, class P> Out do_transform_if(const Execution& where, At at, In first, In last, Out out, F f, P wanted) {
    return do_transform_if(where, at, first, last, first, out, f, wanted);
}
template <class In, class In2, class S, class Out, class F, class P>
Out do_transform_if(const Execution& where, At at, In first, In last, In2 second, S stencil, Out out, F f, P wanted) {
    const auto n = length(first, last);
    each(where, "thrust::transform_if", at, n, [in = raw(first), other = raw(second), by = raw(stencil), to = raw(out), f, wanted](std::int64_t i) mutable {
        auto&& mark = by[i];
        if (!wanted(mark)) return;
        auto&& a = in[i];
        auto&& b = other[i];
        to[i] = f(a, b);
    });
    return out + n;
}

}  // namespace detail

HOSTCUDA_THRUST(transform, (class In, class Out, class F), (In first, In last, Out out, F f), (first, last, out, f), (first, out))
HOSTCUDA_THRUST(transform, (class In, class In2, class Out, class F), (In first, In last, In2 second, Out out, F f), (first, last, second, out, f), (first, second, out))
HOSTCUDA_THRUST(transform_if, (class In, class Out, class F, class P), (In first, In last, Out out, F f, P wanted), (first, last, out, f, wanted), (first, out))
HOSTCUDA_THRUST(transform_if, (class In, class S, class Out, class F, class P), (In first, In last, S stencil, Out out, F f, P wanted),
                (first, last, stencil, out, f, wanted), (first, stencil, out))
HOSTCUDA_THRUST(transform_if, (class In, class In2, class S, class Out, class F, class P), (In first, In last, In2 second, S stencil, Out out, F f, P wanted),
                (first, last, second, stencil, out, f, wanted), (first, second, stencil, out))
}  // namespace thrust

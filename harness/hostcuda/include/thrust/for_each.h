#pragma once
#include "detail/algorithm.h"

namespace thrust {
namespace detail {
template <class In, class N, class F> In do_for_each_n(const Execution& where, At at, In first, N n, F f) {
    each(where, "thrust::for_each", at, static_cast<std::int64_t>(n), [in = raw(first), f](std::int64_t i) mutable {
        auto&& item = in[i];
        f(item);
    });
    return first + n;
}
template <class In, class F> In do_for_each(const Execution& where, At at, In first, In last, F f) {
    if constexpr (indexed<In>) {
        return do_for_each_n(where, at, first, length(first, last), f);
    } else {
        for (; first != last; ++first) f(*first);
        return first;
    }
}
}  // namespace detail
HOSTCUDA_THRUST(for_each, (class In, class F), (In first, In last, F f), (first, last, f), (first))
HOSTCUDA_THRUST(for_each_n, (class In, class N, class F), (In first, N n, F f), (first, n, f), (first))
}  // namespace thrust

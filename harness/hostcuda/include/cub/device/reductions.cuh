// What reductions of whole arrays and of segments have in common.
#pragma once
#include "../iterator/iterators.cuh"
#include "two_calls.cuh"

namespace cub {
namespace detail {

template <class T> constexpr T lowest_of() {
    if constexpr (std::is_same_v<T, __half>) return __half(__half_raw{0xFBFF});
    else if constexpr (std::is_same_v<T, __nv_bfloat16>) return __nv_bfloat16(__nv_bfloat16_raw{0xFF7F});
    else return std::numeric_limits<T>::lowest();
}
template <class T> constexpr T largest_of() {
    if constexpr (std::is_same_v<T, __half>) return __half(__half_raw{0x7BFF});
    else if constexpr (std::is_same_v<T, __nv_bfloat16>) return __nv_bfloat16(__nv_bfloat16_raw{0x7F7F});
    else return std::numeric_limits<T>::max();
}

template <class In, class N, class F, class T> auto folded(In in, N begin, N end, F combine, T initial) {
    combined_of<F, T, value_of<In>> all = initial;
    for (N i = begin; i < end; ++i) all = combine(all, static_cast<value_of<In>>(in[i]));
    return all;
}
// Position (counted from `begin`) and value of the extreme item, the first of equals; of no items, position 1 and `worst`.
template <class In, class N, class F> auto extreme(In in, N begin, N end, F better, value_of<In> worst) {
    KeyValuePair<int, value_of<In>> best(1, worst);
    for (N i = begin; i < end; ++i) {
        const value_of<In> value = in[i];
        if (i == begin || better(value, best.value)) best = {static_cast<int>(i - begin), value};
    }
    return best;
}
struct Above { template <class T> bool operator()(const T& a, const T& b) const { return a > b; } };
struct Below { template <class T> bool operator()(const T& a, const T& b) const { return a < b; } };

}  // namespace detail
}  // namespace cub

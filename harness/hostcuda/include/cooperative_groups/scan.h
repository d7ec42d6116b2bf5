#pragma once
#include "../cooperative_groups.h"
#include "functional.h"

namespace cooperative_groups {
namespace detail {
template <class T, class F> inline T scan(const lanes_group& group, T value, F combine, bool inclusive, int line) {
    T all[32];
    hostcuda::warp_collective(hostcuda::WarpOperation::exchange, group.mask, &value, all, sizeof(T), 0, "cooperative_groups::scan", line);
    T result{};
    for (unsigned r = 0; r < group.rank + (inclusive ? 1u : 0u); ++r) result = r == 0 ? all[group.lane_of_rank(0)] : combine(result, all[group.lane_of_rank(r)]);
    return result;
}
}  // namespace detail
template <class T> inline T inclusive_scan(const lanes_group& g, T v, HOSTCUDA_LINE) { return detail::scan(g, v, plus<T>{}, true, line); }
template <class T, class F> inline T inclusive_scan(const lanes_group& g, T v, F f, HOSTCUDA_LINE) { return detail::scan(g, v, f, true, line); }
template <class T> inline T exclusive_scan(const lanes_group& g, T v, HOSTCUDA_LINE) { return detail::scan(g, v, plus<T>{}, false, line); }
template <class T, class F> inline T exclusive_scan(const lanes_group& g, T v, F f, HOSTCUDA_LINE) { return detail::scan(g, v, f, false, line); }
}  // namespace cooperative_groups

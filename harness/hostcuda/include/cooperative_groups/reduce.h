#pragma once
#include "../cooperative_groups.h"
#include "functional.h"

namespace cooperative_groups {
template <class G, class T, class F> inline T reduce(const G& group, T value, F combine, HOSTCUDA_LINE) {
    return hostcuda::reduce(group.mask, value, "cooperative_groups::reduce", line, combine);
}
}  // namespace cooperative_groups

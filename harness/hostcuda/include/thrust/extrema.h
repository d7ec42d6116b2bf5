#pragma once
#include <algorithm>

#include "reduce.h"

namespace thrust {
using ::std::max;
using ::std::min;
}  // namespace thrust

#pragma once
#include <utility>

#include "version.h"

namespace thrust {
using ::std::get;
using ::std::make_pair;
using ::std::pair;
using ::std::swap;
}  // namespace thrust

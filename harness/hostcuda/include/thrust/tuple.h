#pragma once
#include <tuple>

#include "pair.h"

namespace thrust {
using ::std::get;
using ::std::ignore;
using ::std::make_tuple;
using ::std::tie;
using ::std::tuple;
using ::std::tuple_element;
using ::std::tuple_element_t;
using ::std::tuple_size;
using ::std::tuple_size_v;
}  // namespace thrust

#pragma once
#include <iterator>

#include "../detail/facade.h"

namespace thrust {
template <class It> using iterator_traits = ::std::iterator_traits<It>;
template <class It> using iterator_value = ::std::type_identity<typename ::std::iterator_traits<It>::value_type>;
template <class It> using iterator_reference = ::std::type_identity<typename ::std::iterator_traits<It>::reference>;
template <class It> using iterator_pointer = ::std::type_identity<typename ::std::iterator_traits<It>::pointer>;
template <class It> using iterator_difference = ::std::type_identity<typename ::std::iterator_traits<It>::difference_type>;
template <class It> using iterator_value_t = typename ::std::iterator_traits<It>::value_type;
template <class It> using iterator_reference_t = typename ::std::iterator_traits<It>::reference;
template <class It> using iterator_difference_t = typename ::std::iterator_traits<It>::difference_type;
using ::std::advance;
using ::std::distance;
using ::std::next;
using ::std::prev;
}  // namespace thrust

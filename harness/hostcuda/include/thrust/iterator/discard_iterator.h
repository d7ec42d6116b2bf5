#pragma once
#include "../detail/facade.h"

namespace thrust {
namespace detail {
struct Swallows {
    template <class T> const Swallows& operator=(const T&) const { return *this; }
};
}  // namespace detail
template <class System = use_default> class discard_iterator : public detail::Facade<discard_iterator<System>, detail::Swallows> {
public:
    discard_iterator(std::ptrdiff_t at = 0) : at_(at) {}
    detail::Swallows dereference() const { return {}; }
    void advance(std::ptrdiff_t n) { at_ += n; }
    std::ptrdiff_t behind(const discard_iterator& other) const { return at_ - other.at_; }

private:
    std::ptrdiff_t at_;
};
namespace detail {
template <class S> struct Raw<discard_iterator<S>> : Computed<discard_iterator<S>> {};
}
inline discard_iterator<> make_discard_iterator(std::ptrdiff_t at = 0) { return {at}; }
}  // namespace thrust

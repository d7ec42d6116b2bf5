#pragma once
#include "../detail/facade.h"

namespace thrust {
template <class T, class Index = use_default, class System = use_default>
class constant_iterator : public detail::Facade<constant_iterator<T, Index, System>, T> {
public:
    constant_iterator() = default;
    template <class I = std::ptrdiff_t> constant_iterator(const T& value, I at = 0) : value_(value), at_(static_cast<std::ptrdiff_t>(at)) {}
    T dereference() const { return value_; }
    const T& value() const { return value_; }
    void advance(std::ptrdiff_t n) { at_ += n; }
    std::ptrdiff_t behind(const constant_iterator& other) const { return at_ - other.at_; }

private:
    T value_{};
    std::ptrdiff_t at_ = 0;
};
namespace detail {
template <class... A> struct Raw<constant_iterator<A...>> : Computed<constant_iterator<A...>> {};
}
template <class T> constant_iterator<T> make_constant_iterator(T value) { return constant_iterator<T>(value); }
template <class T, class Index> constant_iterator<T, Index> make_constant_iterator(T value, Index at) { return constant_iterator<T, Index>(value, at); }
}  // namespace thrust

#pragma once
#include "../detail/facade.h"

namespace thrust {
template <class T, class System = use_default, class Traversal = use_default, class Difference = use_default>
class counting_iterator : public detail::Facade<counting_iterator<T, System, Traversal, Difference>, T> {
public:
    counting_iterator() = default;
    explicit counting_iterator(T at) : at_(at) {}
    T dereference() const { return at_; }
    void advance(std::ptrdiff_t n) { at_ = static_cast<T>(at_ + static_cast<T>(n)); }
    std::ptrdiff_t behind(const counting_iterator& other) const { return static_cast<std::ptrdiff_t>(at_) - static_cast<std::ptrdiff_t>(other.at_); }

private:
    T at_{};
};
namespace detail {
template <class... A> struct Raw<counting_iterator<A...>> : Computed<counting_iterator<A...>> {};
}
template <class T> counting_iterator<T> make_counting_iterator(T at) { return counting_iterator<T>(at); }
}  // namespace thrust

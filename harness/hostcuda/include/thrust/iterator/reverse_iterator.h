// Backwards.
#pragma once
#include "../detail/facade.h"

namespace thrust {
template <class It>
class reverse_iterator : public detail::Facade<reverse_iterator<It>, typename std::iterator_traits<It>::value_type, decltype(*std::declval<It&>())> {
public:
    reverse_iterator() = default;
    explicit reverse_iterator(It at) : at_(at) {}
    typename reverse_iterator::reference dereference() const {
        It before = at_;
        return *--before;
    }
    void advance(std::ptrdiff_t n) { at_ -= n; }
    std::ptrdiff_t behind(const reverse_iterator& other) const { return other.at_ - at_; }
    const It& base() const { return at_; }

private:
    It at_;
};
namespace detail {
template <class It> struct Raw<reverse_iterator<It>> {
    static constexpr System system = Raw<It>::system;
    using type = reverse_iterator<raw_of<It>>;
    static type of(const reverse_iterator<It>& it) { return type(raw(it.base())); }
};
}  // namespace detail
template <class It> reverse_iterator<It> make_reverse_iterator(It at) { return reverse_iterator<It>(at); }
}  // namespace thrust

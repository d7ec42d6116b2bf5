// Items of one iterator at the places that another names.
#pragma once
#include "../detail/facade.h"

namespace thrust {
template <class Items, class Places>
class permutation_iterator
    : public detail::Facade<permutation_iterator<Items, Places>, typename std::iterator_traits<Items>::value_type, decltype(*std::declval<Items&>())> {
public:
    permutation_iterator() = default;
    permutation_iterator(Items items, Places places) : items_(items), places_(places) {}
    typename permutation_iterator::reference dereference() const {
        const std::ptrdiff_t place = static_cast<std::ptrdiff_t>(*places_);
        return items_[place];
    }
    void advance(std::ptrdiff_t n) { places_ += n; }
    std::ptrdiff_t behind(const permutation_iterator& other) const { return places_ - other.places_; }
    const Places& base() const { return places_; }
    const Items& items() const { return items_; }

private:
    Items items_;
    Places places_;
};
namespace detail {
template <class Items, class Places> struct Raw<permutation_iterator<Items, Places>> {
    static constexpr System system = both(Raw<Items>::system, Raw<Places>::system);
    using type = permutation_iterator<raw_of<Items>, raw_of<Places>>;
    static type of(const permutation_iterator<Items, Places>& it) { return type(raw(it.items()), raw(it.base())); }
};
}  // namespace detail
template <class Items, class Places> permutation_iterator<Items, Places> make_permutation_iterator(Items items, Places places) { return {items, places}; }
}  // namespace thrust

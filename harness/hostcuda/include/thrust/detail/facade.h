// What iterators of Thrust have in common, and what algorithms take them for: where what they point to lies, and the plain pointers in them.
#pragma once
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

namespace thrust {
struct use_default {};

namespace detail {

enum class System { any, host, device };  // `any`: computed, wherever it runs
constexpr System both(System a, System b) { return a == System::any ? b : b == System::any ? a : a == System::device ? a : b; }

// An iterator as a kernel uses it: device pointers in it are plain ones there.
template <class It> struct Raw {
    static constexpr System system = System::host;
    using type = It;
    static type of(const It& it) { return it; }
};
template <class It> using raw_of = typename Raw<It>::type;
template <class It> raw_of<It> raw(const It& it) { return Raw<It>::of(it); }
template <class... It> constexpr System system_of() {
    System all = System::any;
    ((all = both(all, Raw<It>::system)), ...);
    return all;
}
template <class It> struct Computed {
    static constexpr System system = System::any;
    using type = It;
    static type of(const It& it) { return it; }
};

// Arithmetic of an iterator: `Self` has `reference dereference() const`, `void advance(difference_type)` and `difference_type behind(const Self&) const`.
template <class Self, class Value, class Reference = Value> class Facade {
public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = Value;
    using difference_type = std::ptrdiff_t;
    using pointer = const Value*;
    using reference = Reference;
    Reference operator*() const { return self().dereference(); }
    template <class D> Reference operator[](D n) const { return *(self() + n); }
    Self& operator++() { return self().advance(1), self(); }
    Self& operator--() { return self().advance(-1), self(); }
    Self operator++(int) { Self old = self(); return ++*this, old; }
    Self operator--(int) { Self old = self(); return --*this, old; }
    template <class D> requires std::is_convertible_v<D, std::ptrdiff_t> Self& operator+=(D n) { return self().advance(static_cast<difference_type>(n)), self(); }
    template <class D> requires std::is_convertible_v<D, std::ptrdiff_t> Self& operator-=(D n) { return self().advance(-static_cast<difference_type>(n)), self(); }
    template <class D> requires std::is_convertible_v<D, std::ptrdiff_t> Self operator+(D n) const { Self moved = self(); return moved += n, moved; }
    template <class D> requires std::is_convertible_v<D, std::ptrdiff_t> Self operator-(D n) const { Self moved = self(); return moved -= n, moved; }
    template <class D> requires std::is_convertible_v<D, std::ptrdiff_t> friend Self operator+(D n, const Self& it) { return it + n; }
    difference_type operator-(const Self& other) const { return self().behind(other); }
    bool operator==(const Self& other) const { return self().behind(other) == 0; }
    bool operator<(const Self& other) const { return self().behind(other) < 0; }
    bool operator>(const Self& other) const { return self().behind(other) > 0; }
    bool operator<=(const Self& other) const { return self().behind(other) <= 0; }
    bool operator>=(const Self& other) const { return self().behind(other) >= 0; }

private:
    Self& self() { return static_cast<Self&>(*this); }
    const Self& self() const { return static_cast<const Self&>(*this); }
};

}  // namespace detail
}  // namespace thrust

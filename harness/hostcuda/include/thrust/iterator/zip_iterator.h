// Several iterators side by side: a tuple of what each refers to.
#pragma once
#include "../detail/facade.h"
#include "../tuple.h"

namespace thrust {
template <class Iterators> class zip_iterator;
template <class... It>
class zip_iterator<std::tuple<It...>>
    : public detail::Facade<zip_iterator<std::tuple<It...>>, std::tuple<typename std::iterator_traits<It>::value_type...>, std::tuple<decltype(*std::declval<It&>())...>> {
public:
    zip_iterator() = default;
    zip_iterator(const std::tuple<It...>& all) : all_(all) {}
    zip_iterator(It... all) requires(sizeof...(It) > 1) : all_(all...) {}
    typename zip_iterator::reference dereference() const {
        return std::apply([](const auto&... it) { return typename zip_iterator::reference(*it...); }, all_);
    }
    void advance(std::ptrdiff_t n) { std::apply([n](auto&... it) { ((it += n), ...); }, all_); }
    std::ptrdiff_t behind(const zip_iterator& other) const { return std::get<0>(all_) - std::get<0>(other.all_); }
    const std::tuple<It...>& get_iterator_tuple() const { return all_; }

private:
    std::tuple<It...> all_;
};
template <class... It> zip_iterator(std::tuple<It...>) -> zip_iterator<std::tuple<It...>>;
template <class... It> requires(sizeof...(It) > 1) zip_iterator(It...) -> zip_iterator<std::tuple<It...>>;
namespace detail {
template <class... It> struct Raw<zip_iterator<std::tuple<It...>>> {
    static constexpr System system = system_of<It...>();
    using type = zip_iterator<std::tuple<raw_of<It>...>>;
    static type of(const zip_iterator<std::tuple<It...>>& it) {
        return std::apply([](const auto&... each) { return type(std::tuple<raw_of<It>...>(raw(each)...)); }, it.get_iterator_tuple());
    }
};
}  // namespace detail
template <class... It> zip_iterator<std::tuple<It...>> make_zip_iterator(std::tuple<It...> all) { return {all}; }
template <class... It> zip_iterator<std::tuple<It...>> make_zip_iterator(It... all) { return {std::tuple<It...>(all...)}; }
}  // namespace thrust

// What a function gives of each item of another iterator.
#pragma once
#include "../detail/facade.h"

namespace thrust {
namespace detail {
struct PlaceholderBase;
// What refers to an argument that is gone by then is a value.
template <class F, class R> using kept = std::conditional_t<std::is_rvalue_reference_v<R> || std::is_base_of_v<PlaceholderBase, F>, std::remove_cvref_t<R>, R>;
template <class F, class In> using transformed = kept<F, std::invoke_result_t<F&, decltype(*std::declval<raw_of<In>&>())>>;
template <class T, class Otherwise> using unless_default = std::conditional_t<std::is_same_v<T, use_default>, Otherwise, T>;
}  // namespace detail
template <class F, class In, class Reference = use_default, class Value = use_default>
class transform_iterator
    : public detail::Facade<transform_iterator<F, In, Reference, Value>,
                            std::remove_cvref_t<detail::unless_default<Value, detail::unless_default<Reference, detail::transformed<F, In>>>>,
                            detail::unless_default<Reference, detail::transformed<F, In>>> {
public:
    transform_iterator() = default;
    explicit transform_iterator(const In& in) : in_(in) {}
    transform_iterator(const In& in, F function) : in_(in), function_(function) {}
    typename transform_iterator::reference dereference() const {
        F function = function_;
        return function(*in_);
    }
    void advance(std::ptrdiff_t n) { in_ += n; }
    std::ptrdiff_t behind(const transform_iterator& other) const { return in_ - other.in_; }
    const In& base() const { return in_; }
    F functor() const { return function_; }

private:
    In in_;
    F function_;
};
namespace detail {
template <class F, class In, class R, class V> struct Raw<transform_iterator<F, In, R, V>> {
    static constexpr System system = Raw<In>::system;
    using type = transform_iterator<F, raw_of<In>, R, V>;
    static type of(const transform_iterator<F, In, R, V>& it) { return type(raw(it.base()), it.functor()); }
};
}  // namespace detail
template <class F, class In> transform_iterator<F, In> make_transform_iterator(In in, F function) { return transform_iterator<F, In>(in, function); }
}  // namespace thrust

// Writes what a function gives of what is written to it.
#pragma once
#include "../detail/facade.h"

namespace thrust {
namespace detail {
template <class F, class Out> struct Transforms {
    F function;
    Out out;
    template <class T> const Transforms& operator=(const T& value) const {
        F own = function;
        return *out = own(value), *this;
    }
};
}  // namespace detail
template <class F, class Out>
class transform_output_iterator : public detail::Facade<transform_output_iterator<F, Out>, void, detail::Transforms<F, Out>> {
public:
    transform_output_iterator(Out out, F function) : out_(out), function_(function) {}
    detail::Transforms<F, Out> dereference() const { return {function_, out_}; }
    void advance(std::ptrdiff_t n) { out_ += n; }
    std::ptrdiff_t behind(const transform_output_iterator& other) const { return out_ - other.out_; }
    const Out& base() const { return out_; }
    F functor() const { return function_; }

private:
    Out out_;
    F function_;
};
namespace detail {
template <class F, class Out> struct Raw<transform_output_iterator<F, Out>> {
    static constexpr System system = Raw<Out>::system;
    using type = transform_output_iterator<F, raw_of<Out>>;
    static type of(const transform_output_iterator<F, Out>& it) { return type(raw(it.base()), it.functor()); }
};
}  // namespace detail
template <class F, class Out> transform_output_iterator<F, Out> make_transform_output_iterator(Out out, F function) { return {out, function}; }
}  // namespace thrust

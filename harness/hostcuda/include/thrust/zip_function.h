// A function of several arguments as one of a tuple.
#pragma once
#include "tuple.h"

namespace thrust {
template <class F> class zip_function {
public:
    constexpr zip_function(F f) : function_(f) {}
    template <class T> constexpr decltype(auto) operator()(T&& all) const { return ::std::apply(function_, ::std::forward<T>(all)); }
    template <class T> constexpr decltype(auto) operator()(T&& all) { return ::std::apply(function_, ::std::forward<T>(all)); }
    F& underlying_function() { return function_; }

private:
    F function_;
};
template <class F> constexpr zip_function<::std::decay_t<F>> make_zip_function(F&& f) { return {::std::forward<F>(f)}; }
}  // namespace thrust

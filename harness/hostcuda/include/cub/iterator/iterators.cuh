// Iterators that compute what they give: a count, a constant, a function of another iterator, values with their positions.
#pragma once
#include <cstddef>
#include <iterator>

#include "../util.cuh"

namespace cub {
namespace detail {

// Arithmetic of an iterator whose only state that moves is `at_`.
template <class Self, class Value> class Computed {
public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = Value;
    using difference_type = std::ptrdiff_t;
    using pointer = const Value*;
    using reference = Value;
    Self& operator++() { return self().at_ += 1, self(); }
    Self& operator--() { return self().at_ -= 1, self(); }
    Self operator++(int) { Self old = self(); return ++*this, old; }
    Self operator--(int) { Self old = self(); return --*this, old; }
    template <class D> Self& operator+=(D n) { return self().at_ += n, self(); }
    template <class D> Self& operator-=(D n) { return self().at_ -= n, self(); }
    template <class D> Self operator+(D n) const { Self moved = self(); return moved += n, moved; }
    template <class D> Self operator-(D n) const requires std::is_arithmetic_v<D> { Self moved = self(); return moved -= n, moved; }
    difference_type operator-(const Self& other) const { return static_cast<difference_type>(self().at_ - other.at_); }
    template <class D> Value operator[](D n) const { return *(self() + n); }
    bool operator==(const Self& other) const { return self().at_ == other.at_; }

private:
    Self& self() { return static_cast<Self&>(*this); }
    const Self& self() const { return static_cast<const Self&>(*this); }
};

}  // namespace detail

template <class T, class Offset = std::ptrdiff_t> class CountingInputIterator : public detail::Computed<CountingInputIterator<T, Offset>, T> {
public:
    explicit CountingInputIterator(T start) : at_(start) {}
    T operator*() const { return at_; }
    T at_;
};
template <class T, class Offset = std::ptrdiff_t> class ConstantInputIterator : public detail::Computed<ConstantInputIterator<T, Offset>, T> {
public:
    explicit ConstantInputIterator(T value, Offset start = 0) : at_(start), value_(value) {}
    T operator*() const { return value_; }
    Offset at_;

private:
    T value_;
};
template <class T, class F, class In, class Offset = std::ptrdiff_t> class TransformInputIterator : public detail::Computed<TransformInputIterator<T, F, In, Offset>, T> {
public:
    TransformInputIterator(In in, F function) : at_(in), function_(function) {}
    T operator*() const {
        F function = function_;
        return static_cast<T>(function(*at_));
    }
    In at_;

private:
    F function_;
};
template <class In, class Offset = std::ptrdiff_t, class T = std::decay_t<decltype(*std::declval<In>())>>
class ArgIndexInputIterator : public detail::Computed<ArgIndexInputIterator<In, Offset, T>, KeyValuePair<Offset, T>> {
public:
    explicit ArgIndexInputIterator(In in, Offset start = 0) : at_(start), in_(in) {}
    KeyValuePair<Offset, T> operator*() const { return {at_, static_cast<T>(in_[at_])}; }
    Offset at_;

private:
    In in_;
};

}  // namespace cub

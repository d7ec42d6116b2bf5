// Prefix sums of many items in two steps, as a GPU makes them: within a part, and of the parts before.
#pragma once
#include "two_calls.cuh"

namespace cub {
namespace detail {

template <class T, class F> class Prefix {
public:
    explicit Prefix(F combine) : combine_(combine) {}
    void start() { any_ = false, held_ = 0; }
    void start(const T& initial) { before_ = initial, any_ = true, held_ = 0; }
    template <class V> void push(const V& value) {
        within_ = held_ == 0 ? static_cast<T>(value) : static_cast<T>(combine_(within_, value));
        if (++held_ == in_a_part) start(T(now()));
    }
    // Of all that was pushed, and of what it started with, of which there is something.
    T now() { return held_ == 0 ? before_ : any_ ? static_cast<T>(combine_(before_, within_)) : within_; }

private:
    static constexpr int in_a_part = 256;
    F combine_;
    T before_{}, within_{};
    bool any_ = false;
    int held_ = 0;
};

}  // namespace detail
}  // namespace cub

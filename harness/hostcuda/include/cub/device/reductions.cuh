// What reductions of whole arrays and of segments have in common.
#pragma once
#include "../iterator/iterators.cuh"
#include "two_calls.cuh"

namespace cub {
namespace detail {

template <class T> constexpr T lowest_of() {
    if constexpr (std::is_same_v<T, __half>) return __half(__half_raw{0xFBFF});
    else if constexpr (std::is_same_v<T, __nv_bfloat16>) return __nv_bfloat16(__nv_bfloat16_raw{0xFF7F});
    else return std::numeric_limits<T>::lowest();
}
template <class T> constexpr T largest_of() {
    if constexpr (std::is_same_v<T, __half>) return __half(__half_raw{0x7BFF});
    else if constexpr (std::is_same_v<T, __nv_bfloat16>) return __nv_bfloat16(__nv_bfloat16_raw{0x7F7F});
    else return std::numeric_limits<T>::max();
}

// A sum of many items by a tree, as a GPU makes it: one after another, float32 would lose what a GPU does not. Neighbours meet in their order.
template <class T, class F> class Folder {
public:
    explicit Folder(F combine) : combine_(combine) {}
    template <class V> void push(const V& value) {
        last_ = held_ == 0 ? static_cast<T>(value) : static_cast<T>(combine_(last_, value));
        if (++held_ == in_a_row) carry();
    }
    bool empty() const { return held_ == 0 && filled_ == 0; }
    T result() {  // of at least one
        T all = last_;
        bool any = held_ != 0;
        for (int level = 0; level < levels; ++level)
            if ((filled_ >> level & 1) != 0) all = any ? static_cast<T>(combine_(parts_[level], all)) : parts_[level], any = true;
        return all;
    }
    T result(const T& initial) { return empty() ? initial : static_cast<T>(combine_(initial, result())); }

private:
    static constexpr int in_a_row = 16, levels = 40;
    void carry() {
        int level = 0;
        for (; (filled_ >> level & 1) != 0; ++level) last_ = static_cast<T>(combine_(parts_[level], last_));
        parts_[level] = last_;
        filled_ = (filled_ >> level | 1) << level;
        held_ = 0;
    }
    F combine_;
    T last_{};
    T parts_[levels];
    std::uint64_t filled_ = 0;
    int held_ = 0;
};
template <class In, class N, class F, class T> auto folded(In in, N begin, N end, F combine, T initial) {
    Folder<combined_of<F, T, value_of<In>>, F> all(combine);
    for (N i = begin; i < end; ++i) all.push(static_cast<value_of<In>>(in[i]));
    return all.result(initial);
}
// Position (counted from `begin`) and value of the extreme item, the first of equals; of no items, position 1 and `worst`.
template <class In, class N, class F> auto extreme(In in, N begin, N end, F better, value_of<In> worst) {
    KeyValuePair<int, value_of<In>> best(1, worst);
    for (N i = begin; i < end; ++i) {
        const value_of<In> value = in[i];
        if (i == begin || better(value, best.value)) best = {static_cast<int>(i - begin), value};
    }
    return best;
}
struct Above { template <class T> bool operator()(const T& a, const T& b) const { return a > b; } };
struct Below { template <class T> bool operator()(const T& a, const T& b) const { return a < b; } };

}  // namespace detail
}  // namespace cub

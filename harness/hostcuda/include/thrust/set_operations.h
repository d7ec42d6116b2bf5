// Sorted ranges as sets that hold an item as often as it comes: both, either, one without the other.
#pragma once
#include "detail/algorithm.h"
#include "functional.h"
#include "pair.h"

namespace thrust {
namespace detail {

// Which items a set operation takes: of the first range alone, of the second alone, and of those that are in both the first range's. Equal items are
// matched one to one, in their order, so that what is left over are the last ones of the longer run.
struct Taken {
    bool first, second, both;
};
// Calls `take(range, place)` for each of them, in order; returns how many there were.
template <Taken T, class A, class B, class F, class Take> std::int64_t sets(A& a, std::int64_t n, B& b, std::int64_t m, F& less, Take take) {
    std::int64_t taken = 0;
    for (std::int64_t i = 0, j = 0; i < n || j < m;) {
        const bool first = j == m || (i < n && less(a[i], b[j])), second = !first && (i == n || less(b[j], a[i])), both = !first && !second;
        if (first ? T.first : second ? T.second : T.both) take(second ? 1 : 0, second ? j : i, taken++);
        i += first || both, j += second || both;
    }
    return taken;
}

template <Taken T, class In, class In2, class Out, class F>
Out set_items(const Execution& where, const char* name, At at, In first, In last, In2 first2, In2 last2, Out out, F less) {
    const auto n = length(first, last), m = length(first2, last2);
    return out + answer(where, name, at, [n, m, a = raw(first), b = raw(first2), to = raw(out), less]() mutable {
        return sets<T>(a, n, b, m, less, [&](int range, std::int64_t from, std::int64_t place) {
            if (range == 0) to[place] = a[from];
            else to[place] = b[from];
        });
    });
}
template <Taken T, class In, class In2, class V, class V2, class Keys, class Out, class F>
pair<Keys, Out> set_items_by_key(const Execution& where, const char* name, At at, In first, In last, In2 first2, In2 last2, V values, V2 values2, Keys keys_out, Out out, F less) {
    const auto n = length(first, last), m = length(first2, last2);
    const auto taken = answer(where, name, at, [n, m, a = raw(first), b = raw(first2), va = raw(values), vb = raw(values2), keys = raw(keys_out), to = raw(out), less]() mutable {
        return sets<T>(a, n, b, m, less, [&](int range, std::int64_t from, std::int64_t place) {
            if (range == 0) keys[place] = a[from], to[place] = va[from];
            else keys[place] = b[from], to[place] = vb[from];
        });
    });
    return {keys_out + taken, out + taken};
}

#define HOSTCUDA_SET(name, ...)                                                                                                                                        \
    template <class In, class In2, class Out, class F> Out do_##name(const Execution& where, At at, In first, In last, In2 first2, In2 last2, Out out, F less) {         \
        return set_items<Taken __VA_ARGS__>(where, "thrust::" #name, at, first, last, first2, last2, out, less);                                                        \
    }                                                                                                                                                                  \
    template <class In, class In2, class Out> Out do_##name(const Execution& where, At at, In first, In last, In2 first2, In2 last2, Out out) {                          \
        return do_##name(where, at, first, last, first2, last2, out, thrust::less<>());                                                                                 \
    }
#define HOSTCUDA_SET_BY_KEY(name, ...)                                                                                                                                 \
    template <class In, class In2, class V, class V2, class Keys, class Out, class F>                                                                                   \
    auto do_##name##_by_key(const Execution& where, At at, In first, In last, In2 first2, In2 last2, V values, V2 values2, Keys keys_out, Out out, F less) {              \
        return set_items_by_key<Taken __VA_ARGS__>(where, "thrust::" #name "_by_key", at, first, last, first2, last2, values, values2, keys_out, out, less);            \
    }                                                                                                                                                                  \
    template <class In, class In2, class V, class V2, class Keys, class Out>                                                                                            \
    auto do_##name##_by_key(const Execution& where, At at, In first, In last, In2 first2, In2 last2, V values, V2 values2, Keys keys_out, Out out) {                      \
        return do_##name##_by_key(where, at, first, last, first2, last2, values, values2, keys_out, out, thrust::less<>());                                             \
    }
HOSTCUDA_SET(set_union, {true, true, true})
HOSTCUDA_SET(set_difference, {true, false, false})
HOSTCUDA_SET(set_symmetric_difference, {true, true, false})
HOSTCUDA_SET_BY_KEY(set_union, {true, true, true})
HOSTCUDA_SET_BY_KEY(set_difference, {true, false, false})
HOSTCUDA_SET_BY_KEY(set_symmetric_difference, {true, true, false})
HOSTCUDA_SET(set_intersection, {false, false, true})
#undef HOSTCUDA_SET
#undef HOSTCUDA_SET_BY_KEY
// Of an intersection only the first range has values.
template <class In, class In2, class V, class Keys, class Out, class F>
auto do_set_intersection_by_key(const Execution& where, At at, In first, In last, In2 first2, In2 last2, V values, Keys keys_out, Out out, F less) {
    return set_items_by_key<Taken{false, false, true}>(where, "thrust::set_intersection_by_key", at, first, last, first2, last2, values, values, keys_out, out, less);
}
template <class In, class In2, class V, class Keys, class Out>
auto do_set_intersection_by_key(const Execution& where, At at, In first, In last, In2 first2, In2 last2, V values, Keys keys_out, Out out) {
    return do_set_intersection_by_key(where, at, first, last, first2, last2, values, keys_out, out, thrust::less<>());
}

}  // namespace detail

#define HOSTCUDA_SET(name)                                                                                                                              \
    HOSTCUDA_THRUST(name, (class In, class In2, class Out), (In first, In last, In2 first2, In2 last2, Out out), (first, last, first2, last2, out),       \
                    (first, first2, out))                                                                                                               \
    HOSTCUDA_THRUST(name, (class In, class In2, class Out, class F), (In first, In last, In2 first2, In2 last2, Out out, F less),                         \
                    (first, last, first2, last2, out, less), (first, first2, out))
#define HOSTCUDA_SET_BY_KEY(name)                                                                                                                       \
    HOSTCUDA_THRUST(name, (class In, class In2, class V, class V2, class Keys, class Out),                                                               \
                    (In first, In last, In2 first2, In2 last2, V values, V2 values2, Keys keys_out, Out out),                                            \
                    (first, last, first2, last2, values, values2, keys_out, out), (first, first2, values, values2, keys_out, out))                       \
    HOSTCUDA_THRUST(name, (class In, class In2, class V, class V2, class Keys, class Out, class F),                                                      \
                    (In first, In last, In2 first2, In2 last2, V values, V2 values2, Keys keys_out, Out out, F less),                                    \
                    (first, last, first2, last2, values, values2, keys_out, out, less), (first, first2, values, values2, keys_out, out))
HOSTCUDA_SET(set_union)
HOSTCUDA_SET(set_intersection)
HOSTCUDA_SET(set_difference)
HOSTCUDA_SET(set_symmetric_difference)
HOSTCUDA_SET_BY_KEY(set_union_by_key)
HOSTCUDA_SET_BY_KEY(set_difference_by_key)
HOSTCUDA_SET_BY_KEY(set_symmetric_difference_by_key)
#undef HOSTCUDA_SET
#undef HOSTCUDA_SET_BY_KEY
HOSTCUDA_THRUST(set_intersection_by_key, (class In, class In2, class V, class Keys, class Out),
                (In first, In last, In2 first2, In2 last2, V values, Keys keys_out, Out out), (first, last, first2, last2, values, keys_out, out),
                (first, first2, values, keys_out, out))
HOSTCUDA_THRUST(set_intersection_by_key, (class In, class In2, class V, class Keys, class Out, class F),
                (In first, In last, In2 first2, In2 last2, V values, Keys keys_out, Out out, F less), (first, last, first2, last2, values, keys_out, out, less),
                (first, first2, values, keys_out, out))
}  // namespace thrust

// Stable sorts: by bits where keys are numbers and the order is theirs, by merging otherwise.
#pragma once
#include "../cub/device/radix_passes.cuh"
#include "detail/algorithm.h"
#include "functional.h"

namespace thrust {
namespace detail {

template <class K, class F> inline constexpr bool ascends = std::is_same_v<F, thrust::less<K>> || std::is_same_v<F, thrust::less<>>;
template <class K, class F> inline constexpr bool descends = std::is_same_v<F, thrust::greater<K>> || std::is_same_v<F, thrust::greater<>>;
template <class K, class F> inline constexpr bool by_bits = cub::detail::is_radix_key<K> && (ascends<K, F> || descends<K, F>);

// Sorts `n` items of `keys`, and `values` with them unless there are none; `keys_room` and `values_room` have room for as many.
template <class K, class V, class F> void merge_passes(K* keys, K* keys_room, V* values, V* values_room, std::int64_t n, F& less) {
    const auto move = [](auto* to, std::int64_t i, const auto* from, std::int64_t j) {
        if constexpr (!std::is_same_v<V, cub::NullType>) to[i] = from[j];
    };
    for (std::int64_t width = 1; width < n; width *= 2) {
        for (std::int64_t low = 0; low < n; low += 2 * width) {
            const std::int64_t middle = low + width < n ? low + width : n, high = low + 2 * width < n ? low + 2 * width : n;
            std::int64_t a = low, b = middle;
            for (std::int64_t i = low; i < high; ++i) {
                const bool second = a == middle || (b < high && less(keys[b], keys[a]));
                const std::int64_t from = second ? b++ : a++;
                keys_room[i] = keys[from];
                move(values_room, i, values, from);
            }
        }
        for (std::int64_t i = 0; i < n; ++i) {
            keys[i] = keys_room[i];
            move(values, i, values_room, i);
        }
    }
}

// Keys come from and go to `keys`, whatever iterator that is; so do values.
template <class K, class V, class Keys, class Values, class F> void sort_items(const Execution& where, const char* name, At at, std::int64_t n, Keys keys, Values values, F less) {
    constexpr bool with_values = !std::is_same_v<V, cub::NullType>;
    if (n < 2) return;
    const auto count = static_cast<std::size_t>(n);
    const Room<K> own(where, count), other(where, count);
    const Room<V> own_values(where, with_values ? count : 1), other_values(where, with_values ? count : 1);
    once(where, name, at, [=, a = own.get(), b = other.get(), c = own_values.get(), d = other_values.get()]() mutable {
        for (std::int64_t i = 0; i < n; ++i) {
            a[i] = keys[i];
            if constexpr (with_values) c[i] = values[i];
        }
        if constexpr (by_bits<K, F>) {
            // each byte of the keys is a pass from one room to the other: an even number of them ends where it began
            constexpr bool back = sizeof(K) % 2 == 0;
            K *const end = back ? a : b, *const way = back ? b : a;
            V *const values_end = with_values ? (back ? c : d) : nullptr, *const values_way = with_values ? (back ? d : c) : nullptr;
            cub::detail::radix_passes<descends<K, F>, K, V>({a, with_values ? c : nullptr}, {end, values_end}, {way, values_way}, 0, n, 0, static_cast<int>(8 * sizeof(K)));
            for (std::int64_t i = 0; i < n; ++i) {
                keys[i] = end[i];
                if constexpr (with_values) values[i] = values_end[i];
            }
        } else {
            merge_passes(a, b, c, d, n, less);
            for (std::int64_t i = 0; i < n; ++i) {
                keys[i] = a[i];
                if constexpr (with_values) values[i] = c[i];
            }
        }
    });
}

template <class In, class F> void do_stable_sort(const Execution& where, At at, In first, In last, F less) {
    sort_items<item_of<In>, cub::NullType>(where, "thrust::sort", at, length(first, last), raw(first), nullptr, less);
}
template <class In> void do_stable_sort(const Execution& where, At at, In first, In last) { do_stable_sort(where, at, first, last, thrust::less<item_of<In>>()); }
template <class In, class F> void do_sort(const Execution& where, At at, In first, In last, F less) { do_stable_sort(where, at, first, last, less); }
template <class In> void do_sort(const Execution& where, At at, In first, In last) { do_stable_sort(where, at, first, last); }
template <class In, class Values, class F> void do_stable_sort_by_key(const Execution& where, At at, In first, In last, Values values, F less) {
    sort_items<item_of<In>, item_of<Values>>(where, "thrust::sort_by_key", at, length(first, last), raw(first), raw(values), less);
}
template <class In, class Values> void do_stable_sort_by_key(const Execution& where, At at, In first, In last, Values values) {
    do_stable_sort_by_key(where, at, first, last, values, thrust::less<item_of<In>>());
}
template <class In, class Values, class F> void do_sort_by_key(const Execution& where, At at, In first, In last, Values values, F less) {
    do_stable_sort_by_key(where, at, first, last, values, less);
}
template <class In, class Values> void do_sort_by_key(const Execution& where, At at, In first, In last, Values values) { do_stable_sort_by_key(where, at, first, last, values); }

template <class In, class F> In do_is_sorted_until(const Execution& where, At at, In first, In last, F less) {
    const auto n = length(first, last);
    return first + answer(where, "thrust::is_sorted_until", at, [n, in = raw(first), less]() mutable {
        std::int64_t i = n < 1 ? 0 : 1;
        while (i < n && !less(in[i], in[i - 1])) ++i;
        return i;
    });
}
template <class In> In do_is_sorted_until(const Execution& where, At at, In first, In last) { return do_is_sorted_until(where, at, first, last, thrust::less<>()); }
template <class In, class F> bool do_is_sorted(const Execution& where, At at, In first, In last, F less) { return do_is_sorted_until(where, at, first, last, less) == last; }
template <class In> bool do_is_sorted(const Execution& where, At at, In first, In last) { return do_is_sorted_until(where, at, first, last) == last; }
template <class In, class In2, class Out, class F> Out do_merge(const Execution& where, At at, In first, In last, In2 first2, In2 last2, Out out, F less) {
    const auto n = length(first, last), m = length(first2, last2);
    once(where, "thrust::merge", at, [n, m, a = raw(first), b = raw(first2), to = raw(out), less]() mutable {
        for (std::int64_t i = 0, j = 0; i + j < n + m;) {
            const std::int64_t place = i + j;
            if (i == n || (j < m && less(b[j], a[i]))) to[place] = b[j++];
            else to[place] = a[i++];
        }
    });
    return out + (n + m);
}
template <class In, class In2, class Out> Out do_merge(const Execution& where, At at, In first, In last, In2 first2, In2 last2, Out out) {
    return do_merge(where, at, first, last, first2, last2, out, thrust::less<>());
}

}  // namespace detail

HOSTCUDA_THRUST(sort, (class In), (In first, In last), (first, last), (first))
HOSTCUDA_THRUST(sort, (class In, class F), (In first, In last, F less), (first, last, less), (first))
HOSTCUDA_THRUST(stable_sort, (class In), (In first, In last), (first, last), (first))
HOSTCUDA_THRUST(stable_sort, (class In, class F), (In first, In last, F less), (first, last, less), (first))
HOSTCUDA_THRUST(sort_by_key, (class In, class Values), (In first, In last, Values values), (first, last, values), (first, values))
HOSTCUDA_THRUST(sort_by_key, (class In, class Values, class F), (In first, In last, Values values, F less), (first, last, values, less), (first, values))
HOSTCUDA_THRUST(stable_sort_by_key, (class In, class Values), (In first, In last, Values values), (first, last, values), (first, values))
HOSTCUDA_THRUST(stable_sort_by_key, (class In, class Values, class F), (In first, In last, Values values, F less), (first, last, values, less), (first, values))
HOSTCUDA_THRUST(is_sorted, (class In), (In first, In last), (first, last), (first))
HOSTCUDA_THRUST(is_sorted, (class In, class F), (In first, In last, F less), (first, last, less), (first))
HOSTCUDA_THRUST(is_sorted_until, (class In), (In first, In last), (first, last), (first))
HOSTCUDA_THRUST(is_sorted_until, (class In, class F), (In first, In last, F less), (first, last, less), (first))
HOSTCUDA_THRUST(merge, (class In, class In2, class Out), (In first, In last, In2 first2, In2 last2, Out out), (first, last, first2, last2, out), (first, first2, out))
HOSTCUDA_THRUST(merge, (class In, class In2, class Out, class F), (In first, In last, In2 first2, In2 last2, Out out, F less),
                (first, last, first2, last2, out, less), (first, first2, out))
}  // namespace thrust

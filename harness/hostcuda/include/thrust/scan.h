// Prefix sums, of all and of runs of equal keys; differences of neighbours.
#pragma once
#include "../cub/device/prefixes.cuh"
#include "detail/algorithm.h"
#include "functional.h"
#include "iterator/transform_iterator.h"

namespace thrust {
namespace detail {

template <class T, class In, class Out, class F> Out inclusive(const Execution& where, const char* name, At at, In first, In last, Out out, F combine) {
    const auto n = length(first, last);
    once(where, name, at, [n, in = raw(first), to = raw(out), combine]() mutable {
        cub::detail::Prefix<T, F> prefix(combine);
        for (std::int64_t i = 0; i < n; ++i) {
            prefix.push(static_cast<value_of<decltype(in)>>(in[i]));
            to[i] = prefix.now();
        }
    });
    return out + n;
}
template <class In, class Out, class T, class F> Out exclusive(const Execution& where, const char* name, At at, In first, In last, Out out, T initial, F combine) {
    const auto n = length(first, last);
    once(where, name, at, [n, in = raw(first), to = raw(out), initial, combine]() mutable {
        cub::detail::Prefix<T, F> prefix(combine);
        prefix.start(initial);
        for (std::int64_t i = 0; i < n; ++i) {
            const T value = static_cast<T>(static_cast<value_of<decltype(in)>>(in[i]));
            to[i] = prefix.now();
            prefix.push(value);
        }
    });
    return out + n;
}
template <class In, class Out, class F> Out do_inclusive_scan(const Execution& where, At at, In first, In last, Out out, F combine) {
    return inclusive<item_of<In>>(where, "thrust::inclusive_scan", at, first, last, out, combine);
}
template <class In, class Out, class T, class F> Out do_inclusive_scan(const Execution& where, At at, In first, In last, Out out, T initial, F combine) {
    const auto n = length(first, last);
    once(where, "thrust::inclusive_scan", at, [n, in = raw(first), to = raw(out), initial, combine]() mutable {
        cub::detail::Prefix<cub::detail::combined_of<F, T, value_of<decltype(in)>>, F> prefix(combine);
        prefix.start(initial);
        for (std::int64_t i = 0; i < n; ++i) {
            prefix.push(static_cast<value_of<decltype(in)>>(in[i]));
            to[i] = prefix.now();
        }
    });
    return out + n;
}
template <class In, class Out> Out do_inclusive_scan(const Execution& where, At at, In first, In last, Out out) { return do_inclusive_scan(where, at, first, last, out, thrust::plus<>()); }
template <class In, class Out, class T, class F> Out do_exclusive_scan(const Execution& where, At at, In first, In last, Out out, T initial, F combine) {
    return exclusive(where, "thrust::exclusive_scan", at, first, last, out, initial, combine);
}
template <class In, class Out, class T> Out do_exclusive_scan(const Execution& where, At at, In first, In last, Out out, T initial) {
    return do_exclusive_scan(where, at, first, last, out, initial, thrust::plus<>());
}
template <class In, class Out> Out do_exclusive_scan(const Execution& where, At at, In first, In last, Out out) { return do_exclusive_scan(where, at, first, last, out, item_of<In>{}); }
template <class In, class Out, class G, class F> Out do_transform_inclusive_scan(const Execution& where, At at, In first, In last, Out out, G change, F combine) {
    const auto from = thrust::make_transform_iterator(raw(first), change);
    inclusive<value_of<decltype(from)>>(where, "thrust::transform_inclusive_scan", at, from, from + length(first, last), raw(out), combine);
    return out + length(first, last);
}
template <class In, class Out, class G, class T, class F>
Out do_transform_exclusive_scan(const Execution& where, At at, In first, In last, Out out, G change, T initial, F combine) {
    const thrust::transform_iterator<G, raw_of<In>, T, T> from(raw(first), change);
    exclusive(where, "thrust::transform_exclusive_scan", at, from, from + length(first, last), raw(out), initial, combine);
    return out + length(first, last);
}

template <bool Inclusive, class T, class In, class Values, class Out, class Same, class F>
Out scanned_by_key(const Execution& where, const char* name, At at, In first, In last, Values values, Out out, bool starts, T initial, Same same, F combine) {
    const auto n = length(first, last);
    once(where, name, at, [n, keys = raw(first), in = raw(values), to = raw(out), starts, initial, same, combine]() mutable {
        cub::detail::Prefix<T, F> prefix(combine);
        const auto begin = [&] { starts ? prefix.start(initial) : prefix.start(); };
        begin();
        item_of<In> before{};  // `out` may be `first`
        for (std::int64_t i = 0; i < n; ++i) {
            const item_of<In> key = keys[i];
            if (i != 0 && !same(before, key)) begin();
            before = key;
            const T value = static_cast<T>(static_cast<value_of<decltype(in)>>(in[i]));
            if constexpr (!Inclusive) to[i] = prefix.now();
            prefix.push(value);
            if constexpr (Inclusive) to[i] = prefix.now();
        }
    });
    return out + n;
}
template <class In, class Values, class Out, class Same, class F>
Out do_inclusive_scan_by_key(const Execution& where, At at, In first, In last, Values values, Out out, Same same, F combine) {
    return scanned_by_key<true>(where, "thrust::inclusive_scan_by_key", at, first, last, values, out, false, item_of<Values>{}, same, combine);
}
template <class In, class Values, class Out, class Same> Out do_inclusive_scan_by_key(const Execution& where, At at, In first, In last, Values values, Out out, Same same) {
    return do_inclusive_scan_by_key(where, at, first, last, values, out, same, thrust::plus<>());
}
template <class In, class Values, class Out> Out do_inclusive_scan_by_key(const Execution& where, At at, In first, In last, Values values, Out out) {
    return do_inclusive_scan_by_key(where, at, first, last, values, out, thrust::equal_to<>());
}
template <class In, class Values, class Out, class T, class Same, class F>
Out do_exclusive_scan_by_key(const Execution& where, At at, In first, In last, Values values, Out out, T initial, Same same, F combine) {
    return scanned_by_key<false>(where, "thrust::exclusive_scan_by_key", at, first, last, values, out, true, initial, same, combine);
}
template <class In, class Values, class Out, class T, class Same>
Out do_exclusive_scan_by_key(const Execution& where, At at, In first, In last, Values values, Out out, T initial, Same same) {
    return do_exclusive_scan_by_key(where, at, first, last, values, out, initial, same, thrust::plus<>());
}
template <class In, class Values, class Out, class T> Out do_exclusive_scan_by_key(const Execution& where, At at, In first, In last, Values values, Out out, T initial) {
    return do_exclusive_scan_by_key(where, at, first, last, values, out, initial, thrust::equal_to<>());
}
template <class In, class Values, class Out> Out do_exclusive_scan_by_key(const Execution& where, At at, In first, In last, Values values, Out out) {
    return do_exclusive_scan_by_key(where, at, first, last, values, out, item_of<Values>{});
}

template <class In, class Out, class F> Out do_adjacent_difference(const Execution& where, At at, In first, In last, Out out, F difference) {
    const auto n = length(first, last);
    once(where, "thrust::adjacent_difference", at, [n, in = raw(first), to = raw(out), difference]() mutable {
        item_of<In> before{};
        for (std::int64_t i = 0; i < n; ++i) {
            const item_of<In> value = in[i];
            if (i == 0) to[i] = value;
            else to[i] = difference(value, before);
            before = value;
        }
    });
    return out + n;
}
template <class In, class Out> Out do_adjacent_difference(const Execution& where, At at, In first, In last, Out out) {
    return do_adjacent_difference(where, at, first, last, out, thrust::minus<>());
}

}  // namespace detail

HOSTCUDA_THRUST(inclusive_scan, (class In, class Out), (In first, In last, Out out), (first, last, out), (first, out))
HOSTCUDA_THRUST(inclusive_scan, (class In, class Out, class F), (In first, In last, Out out, F combine), (first, last, out, combine), (first, out))
HOSTCUDA_THRUST(inclusive_scan, (class In, class Out, class T, class F), (In first, In last, Out out, T initial, F combine), (first, last, out, initial, combine), (first, out))
HOSTCUDA_THRUST(exclusive_scan, (class In, class Out), (In first, In last, Out out), (first, last, out), (first, out))
HOSTCUDA_THRUST(exclusive_scan, (class In, class Out, class T), (In first, In last, Out out, T initial), (first, last, out, initial), (first, out))
HOSTCUDA_THRUST(exclusive_scan, (class In, class Out, class T, class F), (In first, In last, Out out, T initial, F combine), (first, last, out, initial, combine), (first, out))
HOSTCUDA_THRUST(transform_inclusive_scan, (class In, class Out, class G, class F), (In first, In last, Out out, G change, F combine), (first, last, out, change, combine), (first, out))
HOSTCUDA_THRUST(transform_exclusive_scan, (class In, class Out, class G, class T, class F), (In first, In last, Out out, G change, T initial, F combine),
                (first, last, out, change, initial, combine), (first, out))
HOSTCUDA_THRUST(inclusive_scan_by_key, (class In, class Values, class Out), (In first, In last, Values values, Out out), (first, last, values, out), (first, values, out))
HOSTCUDA_THRUST(inclusive_scan_by_key, (class In, class Values, class Out, class Same), (In first, In last, Values values, Out out, Same same),
                (first, last, values, out, same), (first, values, out))
HOSTCUDA_THRUST(inclusive_scan_by_key, (class In, class Values, class Out, class Same, class F), (In first, In last, Values values, Out out, Same same, F combine),
                (first, last, values, out, same, combine), (first, values, out))
HOSTCUDA_THRUST(exclusive_scan_by_key, (class In, class Values, class Out), (In first, In last, Values values, Out out), (first, last, values, out), (first, values, out))
HOSTCUDA_THRUST(exclusive_scan_by_key, (class In, class Values, class Out, class T), (In first, In last, Values values, Out out, T initial),
                (first, last, values, out, initial), (first, values, out))
HOSTCUDA_THRUST(exclusive_scan_by_key, (class In, class Values, class Out, class T, class Same), (In first, In last, Values values, Out out, T initial, Same same),
                (first, last, values, out, initial, same), (first, values, out))
HOSTCUDA_THRUST(exclusive_scan_by_key, (class In, class Values, class Out, class T, class Same, class F),
                (In first, In last, Values values, Out out, T initial, Same same, F combine), (first, last, values, out, initial, same, combine), (first, values, out))
HOSTCUDA_THRUST(adjacent_difference, (class In, class Out), (In first, In last, Out out), (first, last, out), (first, out))
HOSTCUDA_THRUST(adjacent_difference, (class In, class Out, class F), (In first, In last, Out out, F difference), (first, last, out, difference), (first, out))
}  // namespace thrust

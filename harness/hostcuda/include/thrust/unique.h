// What stays of a range, in its order: one of each run of equals, what is not removed, what a predicate puts first.
#pragma once
#include "copy.h"
#include "functional.h"
#include "pair.h"

namespace thrust {
namespace detail {

template <class In, class Values, class Keys, class Out, class Same>
pair<Keys, Out> do_unique_by_key_copy(const Execution& where, At at, In first, In last, Values values, Keys keys_out, Out out, Same same) {
    const auto n = length(first, last);
    const auto kept = answer(where, "thrust::unique", at, [n, keys = raw(first), in = raw(values), to_keys = raw(keys_out), to = raw(out), same]() mutable {
        std::int64_t written = 0;
        item_of<In> before{};
        for (std::int64_t i = 0; i < n; ++i) {
            const item_of<In> key = keys[i];
            if (i == 0 || !same(before, key)) {
                const item_of<Values> value = in[i];
                to_keys[written] = key;
                to[written++] = value;
            }
            before = key;
        }
        return written;
    });
    return {keys_out + kept, out + kept};
}
template <class In, class Values, class Keys, class Out>
pair<Keys, Out> do_unique_by_key_copy(const Execution& where, At at, In first, In last, Values values, Keys keys_out, Out out) {
    return do_unique_by_key_copy(where, at, first, last, values, keys_out, out, thrust::equal_to<>());
}
template <class In, class Values, class Same> pair<In, Values> do_unique_by_key(const Execution& where, At at, In first, In last, Values values, Same same) {
    return do_unique_by_key_copy(where, at, first, last, values, first, values, same);
}
template <class In, class Values> pair<In, Values> do_unique_by_key(const Execution& where, At at, In first, In last, Values values) {
    return do_unique_by_key(where, at, first, last, values, thrust::equal_to<>());
}
template <class In, class Out, class Same> Out do_unique_copy(const Execution& where, At at, In first, In last, Out out, Same same) {
    const auto n = length(first, last);
    return out + answer(where, "thrust::unique", at, [n, in = raw(first), to = raw(out), same]() mutable {
        std::int64_t written = 0;
        item_of<In> before{};
        for (std::int64_t i = 0; i < n; ++i) {
            const item_of<In> item = in[i];
            if (i == 0 || !same(before, item)) to[written++] = item;
            before = item;
        }
        return written;
    });
}
template <class In, class Out> Out do_unique_copy(const Execution& where, At at, In first, In last, Out out) { return do_unique_copy(where, at, first, last, out, thrust::equal_to<>()); }
template <class In, class Same> In do_unique(const Execution& where, At at, In first, In last, Same same) { return do_unique_copy(where, at, first, last, first, same); }
template <class In> In do_unique(const Execution& where, At at, In first, In last) { return do_unique(where, at, first, last, thrust::equal_to<>()); }
template <class In, class Same> auto do_unique_count(const Execution& where, At at, In first, In last, Same same) {
    const auto n = length(first, last);
    return answer(where, "thrust::unique_count", at, [n, in = raw(first), same]() mutable {
        typename std::iterator_traits<In>::difference_type found = n > 0 ? 1 : 0;
        for (std::int64_t i = 1; i < n; ++i) found += same(in[i - 1], in[i]) ? 0 : 1;
        return found;
    });
}
template <class In> auto do_unique_count(const Execution& where, At at, In first, In last) { return do_unique_count(where, at, first, last, thrust::equal_to<>()); }

template <class In, class S, class Out, class P> Out do_remove_copy_if(const Execution& where, At at, In first, In last, S stencil, Out out, P unwanted) {
    return do_copy_if(where, at, first, last, stencil, out, [unwanted](auto& mark) mutable { return !unwanted(mark); });
}
template <class In, class Out, class P> Out do_remove_copy_if(const Execution& where, At at, In first, In last, Out out, P unwanted) {
    return do_remove_copy_if(where, at, first, last, first, out, unwanted);
}
template <class In, class Out, class T> Out do_remove_copy(const Execution& where, At at, In first, In last, Out out, T value) {
    return do_remove_copy_if(where, at, first, last, out, [value](const auto& item) { return item == value; });
}
template <class In, class P> In do_remove_if(const Execution& where, At at, In first, In last, P unwanted) { return do_remove_copy_if(where, at, first, last, first, unwanted); }
template <class In, class S, class P> In do_remove_if(const Execution& where, At at, In first, In last, S stencil, P unwanted) {
    return do_remove_copy_if(where, at, first, last, stencil, first, unwanted);
}
template <class In, class T> In do_remove(const Execution& where, At at, In first, In last, T value) { return do_remove_copy(where, at, first, last, first, value); }

template <class In, class S, class Yes, class No, class P>
pair<Yes, No> do_partition_copy(const Execution& where, At at, In first, In last, S stencil, Yes yes, No no, P wanted) {
    const auto n = length(first, last);
    const auto kept = answer(where, "thrust::partition_copy", at, [n, in = raw(first), by = raw(stencil), to = raw(yes), other = raw(no), wanted]() mutable {
        std::int64_t chosen = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            auto&& mark = by[i];
            const bool good = wanted(mark);
            const item_of<In> item = in[i];
            if (good) to[chosen++] = item;
            else other[i - chosen] = item;
        }
        return chosen;
    });
    return {yes + kept, no + (n - kept)};
}
template <class In, class Yes, class No, class P> pair<Yes, No> do_partition_copy(const Execution& where, At at, In first, In last, Yes yes, No no, P wanted) {
    return do_partition_copy(where, at, first, last, first, yes, no, wanted);
}
template <class In, class S, class P> In do_stable_partition(const Execution& where, At at, In first, In last, S stencil, P wanted) {
    using T = item_of<In>;
    const auto n = length(first, last);
    const Room<T> others(where, static_cast<std::size_t>(n < 0 ? 0 : n));
    return first + answer(where, "thrust::partition", at, [n, a = raw(first), by = raw(stencil), rest = others.get(), wanted]() mutable {
        std::int64_t chosen = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            auto&& mark = by[i];
            const bool good = wanted(mark);
            const T item = a[i];
            if (good) a[chosen++] = item;
            else rest[i - chosen] = item;
        }
        for (std::int64_t i = chosen; i < n; ++i) a[i] = rest[i - chosen];
        return chosen;
    });
}
template <class In, class P> In do_stable_partition(const Execution& where, At at, In first, In last, P wanted) { return do_stable_partition(where, at, first, last, first, wanted); }
template <class In, class S, class P> In do_partition(const Execution& where, At at, In first, In last, S stencil, P wanted) { return do_stable_partition(where, at, first, last, stencil, wanted); }
template <class In, class P> In do_partition(const Execution& where, At at, In first, In last, P wanted) { return do_stable_partition(where, at, first, last, wanted); }

}  // namespace detail

HOSTCUDA_THRUST(unique, (class In), (In first, In last), (first, last), (first))
HOSTCUDA_THRUST(unique, (class In, class Same), (In first, In last, Same same), (first, last, same), (first))
HOSTCUDA_THRUST(unique_copy, (class In, class Out), (In first, In last, Out out), (first, last, out), (first, out))
HOSTCUDA_THRUST(unique_copy, (class In, class Out, class Same), (In first, In last, Out out, Same same), (first, last, out, same), (first, out))
HOSTCUDA_THRUST(unique_count, (class In), (In first, In last), (first, last), (first))
HOSTCUDA_THRUST(unique_count, (class In, class Same), (In first, In last, Same same), (first, last, same), (first))
HOSTCUDA_THRUST(unique_by_key, (class In, class Values), (In first, In last, Values values), (first, last, values), (first, values))
HOSTCUDA_THRUST(unique_by_key, (class In, class Values, class Same), (In first, In last, Values values, Same same), (first, last, values, same), (first, values))
HOSTCUDA_THRUST(unique_by_key_copy, (class In, class Values, class Keys, class Out), (In first, In last, Values values, Keys keys_out, Out out),
                (first, last, values, keys_out, out), (first, values, keys_out, out))
HOSTCUDA_THRUST(unique_by_key_copy, (class In, class Values, class Keys, class Out, class Same), (In first, In last, Values values, Keys keys_out, Out out, Same same),
                (first, last, values, keys_out, out, same), (first, values, keys_out, out))
HOSTCUDA_THRUST(remove, (class In, class T), (In first, In last, const T& value), (first, last, value), (first))
HOSTCUDA_THRUST(remove_if, (class In, class P), (In first, In last, P unwanted), (first, last, unwanted), (first))
HOSTCUDA_THRUST(remove_if, (class In, class S, class P), (In first, In last, S stencil, P unwanted), (first, last, stencil, unwanted), (first, stencil))
HOSTCUDA_THRUST(remove_copy, (class In, class Out, class T), (In first, In last, Out out, const T& value), (first, last, out, value), (first, out))
HOSTCUDA_THRUST(remove_copy_if, (class In, class Out, class P), (In first, In last, Out out, P unwanted), (first, last, out, unwanted), (first, out))
HOSTCUDA_THRUST(remove_copy_if, (class In, class S, class Out, class P), (In first, In last, S stencil, Out out, P unwanted), (first, last, stencil, out, unwanted), (first, stencil, out))
HOSTCUDA_THRUST(partition, (class In, class P), (In first, In last, P wanted), (first, last, wanted), (first))
HOSTCUDA_THRUST(partition, (class In, class S, class P), (In first, In last, S stencil, P wanted), (first, last, stencil, wanted), (first, stencil))
HOSTCUDA_THRUST(stable_partition, (class In, class P), (In first, In last, P wanted), (first, last, wanted), (first))
HOSTCUDA_THRUST(stable_partition, (class In, class S, class P), (In first, In last, S stencil, P wanted), (first, last, stencil, wanted), (first, stencil))
HOSTCUDA_THRUST(partition_copy, (class In, class Yes, class No, class P), (In first, In last, Yes yes, No no, P wanted), (first, last, yes, no, wanted), (first, yes, no))
HOSTCUDA_THRUST(partition_copy, (class In, class S, class Yes, class No, class P), (In first, In last, S stencil, Yes yes, No no, P wanted),
                (first, last, stencil, yes, no, wanted), (first, stencil, yes, no))
}  // namespace thrust

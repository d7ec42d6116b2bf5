// One value of many: sums, products of two ranges, counts, extremes, and a value for each run of equal keys.
#pragma once
#include "../cub/device/reductions.cuh"
#include "detail/algorithm.h"
#include "functional.h"
#include "iterator/transform_iterator.h"
#include "pair.h"

namespace thrust {
namespace detail {

template <class In, class T, class F> T do_reduce(const Execution& where, At at, In first, In last, T initial, F combine) {
    const auto n = length(first, last);
    return answer(where, "thrust::reduce", at, [n, in = raw(first), initial, combine]() mutable { return static_cast<T>(cub::detail::folded(in, std::int64_t{0}, n, combine, initial)); });
}
template <class In, class T> T do_reduce(const Execution& where, At at, In first, In last, T initial) { return do_reduce(where, at, first, last, initial, thrust::plus<T>()); }
template <class In> item_of<In> do_reduce(const Execution& where, At at, In first, In last) { return do_reduce(where, at, first, last, item_of<In>{}); }

template <class In, class G, class T, class F> T do_transform_reduce(const Execution& where, At at, In first, In last, G change, T initial, F combine) {
    const auto n = length(first, last);
    return answer(where, "thrust::transform_reduce", at, [n, in = raw(first), change, initial, combine]() mutable {
        return static_cast<T>(cub::detail::folded(thrust::make_transform_iterator(in, change), std::int64_t{0}, n, combine, initial));
    });
}
template <class In, class In2, class T, class F, class G> T do_inner_product(const Execution& where, At at, In first, In last, In2 second, T initial, F combine, G multiply) {
    const auto n = length(first, last);
    return answer(where, "thrust::inner_product", at, [n, in = raw(first), other = raw(second), initial, combine, multiply]() mutable {
        using Product = std::decay_t<decltype(multiply(in[0], other[0]))>;
        cub::detail::Folder<cub::detail::combined_of<F, T, Product>, F> all(combine);
        for (std::int64_t i = 0; i < n; ++i) all.push(static_cast<Product>(multiply(in[i], other[i])));
        return static_cast<T>(all.result(initial));
    });
}
template <class In, class In2, class T> T do_inner_product(const Execution& where, At at, In first, In last, In2 second, T initial) {
    return do_inner_product(where, at, first, last, second, initial, thrust::plus<T>(), thrust::multiplies<T>());
}
template <class In, class P> typename std::iterator_traits<In>::difference_type do_count_if(const Execution& where, At at, In first, In last, P wanted) {
    const auto n = length(first, last);
    return answer(where, "thrust::count_if", at, [n, in = raw(first), wanted]() mutable {
        typename std::iterator_traits<In>::difference_type found = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            auto&& item = in[i];
            found += wanted(item) ? 1 : 0;
        }
        return found;
    });
}
template <class In, class T> auto do_count(const Execution& where, At at, In first, In last, T value) {
    return do_count_if(where, at, first, last, [value](const auto& item) { return item == value; });
}
// The first of equals, as the place from `first` on.
template <class In, class F> std::int64_t extreme(const Execution& where, const char* name, At at, In first, In last, F better) {
    const auto n = length(first, last);
    if (n <= 0) return 0;
    return answer(where, name, at, [n, in = raw(first), better]() mutable {
        std::int64_t best = 0;
        for (std::int64_t i = 1; i < n; ++i)
            if (better(in[i], in[best])) best = i;
        return best;
    });
}
template <class In, class F> In do_min_element(const Execution& where, At at, In first, In last, F less) { return first + extreme(where, "thrust::min_element", at, first, last, less); }
template <class In> In do_min_element(const Execution& where, At at, In first, In last) { return do_min_element(where, at, first, last, thrust::less<item_of<In>>()); }
template <class In, class F> In do_max_element(const Execution& where, At at, In first, In last, F less) {
    return first + extreme(where, "thrust::max_element", at, first, last, [less](const auto& a, const auto& b) mutable { return less(b, a); });
}
template <class In> In do_max_element(const Execution& where, At at, In first, In last) { return do_max_element(where, at, first, last, thrust::less<item_of<In>>()); }
template <class In, class F> pair<In, In> do_minmax_element(const Execution& where, At at, In first, In last, F less) {
    return {do_min_element(where, at, first, last, less), do_max_element(where, at, first, last, less)};
}
template <class In> pair<In, In> do_minmax_element(const Execution& where, At at, In first, In last) { return do_minmax_element(where, at, first, last, thrust::less<item_of<In>>()); }
template <class In, class P> In do_find_if(const Execution& where, At at, In first, In last, P wanted) {
    const auto n = length(first, last);
    return first + answer(where, "thrust::find_if", at, [n, in = raw(first), wanted]() mutable {
        std::int64_t i = 0;
        for (; i < n; ++i) {
            auto&& item = in[i];
            if (wanted(item)) break;
        }
        return i;
    });
}
template <class In, class P> In do_find_if_not(const Execution& where, At at, In first, In last, P wanted) {
    return do_find_if(where, at, first, last, [wanted](const auto& item) mutable { return !wanted(item); });
}
template <class In, class T> In do_find(const Execution& where, At at, In first, In last, T value) {
    return do_find_if(where, at, first, last, [value](const auto& item) { return item == value; });
}
template <class In, class P> bool do_any_of(const Execution& where, At at, In first, In last, P wanted) { return do_find_if(where, at, first, last, wanted) != last; }
template <class In, class P> bool do_none_of(const Execution& where, At at, In first, In last, P wanted) { return do_find_if(where, at, first, last, wanted) == last; }
template <class In, class P> bool do_all_of(const Execution& where, At at, In first, In last, P wanted) { return do_find_if_not(where, at, first, last, wanted) == last; }
template <class In, class In2, class F> pair<In, In2> do_mismatch(const Execution& where, At at, In first, In last, In2 second, F same) {
    const auto n = length(first, last);
    const auto i = answer(where, "thrust::mismatch", at, [n, in = raw(first), other = raw(second), same]() mutable {
        std::int64_t place = 0;
        while (place < n && same(in[place], other[place])) ++place;
        return place;
    });
    return {first + i, second + i};
}
template <class In, class In2> pair<In, In2> do_mismatch(const Execution& where, At at, In first, In last, In2 second) {
    return do_mismatch(where, at, first, last, second, thrust::equal_to<>());
}
template <class In, class In2, class F> bool do_equal(const Execution& where, At at, In first, In last, In2 second, F same) {
    return do_mismatch(where, at, first, last, second, same).first == last;
}
template <class In, class In2> bool do_equal(const Execution& where, At at, In first, In last, In2 second) { return do_equal(where, at, first, last, second, thrust::equal_to<>()); }

template <class In, class Values, class Keys, class Out, class Same, class F>
pair<Keys, Out> do_reduce_by_key(const Execution& where, At at, In first, In last, Values values, Keys keys_out, Out out, Same same, F combine) {
    const auto n = length(first, last);
    const auto runs = answer(where, "thrust::reduce_by_key", at, [n, keys = raw(first), in = raw(values), to_keys = raw(keys_out), to = raw(out), same, combine]() mutable {
        using T = item_of<Values>;
        std::int64_t written = 0;
        for (std::int64_t i = 0; i < n;) {
            const item_of<In> key = keys[i];
            item_of<In> before = key;
            cub::detail::Folder<T, F> all(combine);
            for (;;) {
                all.push(static_cast<T>(in[i]));
                if (++i == n) break;
                const item_of<In> next = keys[i];
                if (!same(before, next)) break;
                before = next;
            }
            to_keys[written] = key;
            to[written++] = all.result();
        }
        return written;
    });
    return {keys_out + runs, out + runs};
}
template <class In, class Values, class Keys, class Out, class Same>
pair<Keys, Out> do_reduce_by_key(const Execution& where, At at, In first, In last, Values values, Keys keys_out, Out out, Same same) {
    return do_reduce_by_key(where, at, first, last, values, keys_out, out, same, thrust::plus<item_of<Values>>());
}
template <class In, class Values, class Keys, class Out>
pair<Keys, Out> do_reduce_by_key(const Execution& where, At at, In first, In last, Values values, Keys keys_out, Out out) {
    return do_reduce_by_key(where, at, first, last, values, keys_out, out, thrust::equal_to<item_of<In>>());
}

}  // namespace detail

HOSTCUDA_THRUST(reduce, (class In), (In first, In last), (first, last), (first))
HOSTCUDA_THRUST(reduce, (class In, class T), (In first, In last, T initial), (first, last, initial), (first))
HOSTCUDA_THRUST(reduce, (class In, class T, class F), (In first, In last, T initial, F combine), (first, last, initial, combine), (first))
HOSTCUDA_THRUST(transform_reduce, (class In, class G, class T, class F), (In first, In last, G change, T initial, F combine), (first, last, change, initial, combine), (first))
HOSTCUDA_THRUST(inner_product, (class In, class In2, class T), (In first, In last, In2 second, T initial), (first, last, second, initial), (first, second))
HOSTCUDA_THRUST(inner_product, (class In, class In2, class T, class F, class G), (In first, In last, In2 second, T initial, F combine, G multiply),
                (first, last, second, initial, combine, multiply), (first, second))
HOSTCUDA_THRUST(count, (class In, class T), (In first, In last, const T& value), (first, last, value), (first))
HOSTCUDA_THRUST(count_if, (class In, class P), (In first, In last, P wanted), (first, last, wanted), (first))
HOSTCUDA_THRUST(min_element, (class In), (In first, In last), (first, last), (first))
HOSTCUDA_THRUST(min_element, (class In, class F), (In first, In last, F less), (first, last, less), (first))
HOSTCUDA_THRUST(max_element, (class In), (In first, In last), (first, last), (first))
HOSTCUDA_THRUST(max_element, (class In, class F), (In first, In last, F less), (first, last, less), (first))
HOSTCUDA_THRUST(minmax_element, (class In), (In first, In last), (first, last), (first))
HOSTCUDA_THRUST(minmax_element, (class In, class F), (In first, In last, F less), (first, last, less), (first))
HOSTCUDA_THRUST(find, (class In, class T), (In first, In last, const T& value), (first, last, value), (first))
HOSTCUDA_THRUST(find_if, (class In, class P), (In first, In last, P wanted), (first, last, wanted), (first))
HOSTCUDA_THRUST(find_if_not, (class In, class P), (In first, In last, P wanted), (first, last, wanted), (first))
HOSTCUDA_THRUST(any_of, (class In, class P), (In first, In last, P wanted), (first, last, wanted), (first))
HOSTCUDA_THRUST(none_of, (class In, class P), (In first, In last, P wanted), (first, last, wanted), (first))
HOSTCUDA_THRUST(all_of, (class In, class P), (In first, In last, P wanted), (first, last, wanted), (first))
HOSTCUDA_THRUST(mismatch, (class In, class In2), (In first, In last, In2 second), (first, last, second), (first, second))
HOSTCUDA_THRUST(mismatch, (class In, class In2, class F), (In first, In last, In2 second, F same), (first, last, second, same), (first, second))
HOSTCUDA_THRUST(equal, (class In, class In2), (In first, In last, In2 second), (first, last, second), (first, second))
HOSTCUDA_THRUST(equal, (class In, class In2, class F), (In first, In last, In2 second, F same), (first, last, second, same), (first, second))
HOSTCUDA_THRUST(reduce_by_key, (class In, class Values, class Keys, class Out), (In first, In last, Values values, Keys keys_out, Out out),
                (first, last, values, keys_out, out), (first, values, keys_out, out))
HOSTCUDA_THRUST(reduce_by_key, (class In, class Values, class Keys, class Out, class Same), (In first, In last, Values values, Keys keys_out, Out out, Same same),
                (first, last, values, keys_out, out, same), (first, values, keys_out, out))
HOSTCUDA_THRUST(reduce_by_key, (class In, class Values, class Keys, class Out, class Same, class F),
                (In first, In last, Values values, Keys keys_out, Out out, Same same, F combine),
                (first, last, values, keys_out, out, same, combine), (first, values, keys_out, out))
}  // namespace thrust

// Copies, also between host and device; by a predicate; by places.
#pragma once
#include <memory>
#include <vector>

#include "detail/algorithm.h"

namespace thrust {
namespace detail {

template <class In, class Out> Out do_copy(const Execution& where, At at, In first, In last, Out out) {
    if constexpr (indexed<In> && indexed<Out>) {
        const auto n = length(first, last);
        each(where, "thrust::copy", at, n, [in = raw(first), to = raw(out)](std::int64_t i) mutable { to[i] = in[i]; });
        return out + n;
    } else {
        for (; first != last; ++first, ++out) *out = *first;
        return out;
    }
}
// Between host and device an array of items goes through both.
template <class In, class Out> Out copied(At at, In first, In last, Out out) {
    constexpr System from = Raw<In>::system, to = Raw<Out>::system;
    if constexpr (from == System::device && to == System::host) {
        using T = item_of<In>;
        const auto n = length(first, last);
        if (n <= 0) return out;
        const Room<T> room(thrust::device, static_cast<std::size_t>(n));
        do_copy(thrust::device, at, first, last, device_ptr<T>(room.get()));
        const std::unique_ptr<unsigned char[]> bytes(new unsigned char[static_cast<std::size_t>(n) * sizeof(T)]);
        detail::check(cudaMemcpy(bytes.get(), room.get(), static_cast<std::size_t>(n) * sizeof(T), cudaMemcpyDeviceToHost), "thrust::copy");
        const T* held = reinterpret_cast<const T*>(bytes.get());
        for (std::int64_t i = 0; i < n; ++i, ++out) *out = held[i];
        return out;
    } else if constexpr (from == System::host && to == System::device) {
        using T = item_of<In>;
        const auto n = static_cast<std::int64_t>(std::distance(first, last));
        if (n <= 0) return out;
        const std::unique_ptr<unsigned char[]> bytes(new unsigned char[static_cast<std::size_t>(n) * sizeof(T)]);
        T* held = reinterpret_cast<T*>(bytes.get());
        for (std::int64_t i = 0; i < n; ++i, ++first) held[i] = *first;
        const Room<T> room(thrust::device, static_cast<std::size_t>(n));
        detail::check(cudaMemcpy(room.get(), held, static_cast<std::size_t>(n) * sizeof(T), cudaMemcpyHostToDevice), "thrust::copy");
        const device_ptr<const T> start(room.get());
        return do_copy(thrust::device, at, start, start + n, out);
    } else {
        return do_copy(chosen("thrust::copy", at, first, out), at, first, last, out);
    }
}
template <class In, class N, class Out> Out do_copy_n(const Execution& where, At at, In first, N n, Out out) { return do_copy(where, at, first, first + n, out); }
template <class In, class Out> Out do_uninitialized_copy(const Execution& where, At at, In first, In last, Out out) { return do_copy(where, at, first, last, out); }
template <class In, class S, class Out, class P> Out do_copy_if(const Execution& where, At at, In first, In last, S stencil, Out out, P wanted) {
    const auto n = length(first, last);
    return out + answer(where, "thrust::copy_if", at, [n, in = raw(first), by = raw(stencil), to = raw(out), wanted]() mutable {
        std::int64_t kept = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            auto&& mark = by[i];
            if (wanted(mark)) to[kept++] = in[i];
        }
        return kept;
    });
}
template <class In, class Out, class P> Out do_copy_if(const Execution& where, At at, In first, In last, Out out, P wanted) {
    return do_copy_if(where, at, first, last, first, out, wanted);
}
template <class In, class Places, class Out> Out do_gather(const Execution& where, At at, Places first, Places last, In items, Out out) {
    const auto n = length(first, last);
    each(where, "thrust::gather", at, n, [places = raw(first), in = raw(items), to = raw(out)](std::int64_t i) mutable { to[i] = in[static_cast<std::int64_t>(places[i])]; });
    return out + n;
}
template <class In, class Places, class S, class Out, class P>
Out do_gather_if(const Execution& where, At at, Places first, Places last, S stencil, In items, Out out, P wanted) {
    const auto n = length(first, last);
    each(where, "thrust::gather_if", at, n, [places = raw(first), by = raw(stencil), in = raw(items), to = raw(out), wanted](std::int64_t i) mutable {
        auto&& mark = by[i];
        if (wanted(mark)) to[i] = in[static_cast<std::int64_t>(places[i])];
    });
    return out + n;
}
template <class In, class Places, class Out> void do_scatter(const Execution& where, At at, In first, In last, Places places, Out out) {
    each(where, "thrust::scatter", at, length(first, last), [in = raw(first), by = raw(places), to = raw(out)](std::int64_t i) mutable { to[static_cast<std::int64_t>(by[i])] = in[i]; });
}
template <class In, class Places, class S, class Out, class P>
void do_scatter_if(const Execution& where, At at, In first, In last, Places places, S stencil, Out out, P wanted) {
    each(where, "thrust::scatter_if", at, length(first, last), [in = raw(first), by = raw(places), marks = raw(stencil), to = raw(out), wanted](std::int64_t i) mutable {
        auto&& mark = marks[i];
        if (wanted(mark)) to[static_cast<std::int64_t>(by[i])] = in[i];
    });
}
template <class In, class Out> Out do_swap_ranges(const Execution& where, At at, In first, In last, Out other) {
    const auto n = length(first, last);
    each(where, "thrust::swap_ranges", at, n, [a = raw(first), b = raw(other)](std::int64_t i) mutable {
        const item_of<In> held = a[i];
        a[i] = b[i];
        b[i] = held;
    });
    return other + n;
}
template <class In, class Out> Out do_reverse_copy(const Execution& where, At at, In first, In last, Out out) {
    const auto n = length(first, last);
    each(where, "thrust::reverse_copy", at, n, [n, in = raw(first), to = raw(out)](std::int64_t i) mutable { to[i] = in[n - 1 - i]; });
    return out + n;
}
template <class In> void do_reverse(const Execution& where, At at, In first, In last) {
    const auto n = length(first, last);
    each(where, "thrust::reverse", at, n / 2, [n, a = raw(first)](std::int64_t i) mutable {
        const item_of<In> held = a[i];
        a[i] = a[n - 1 - i];
        a[n - 1 - i] = held;
    });
}

}  // namespace detail

template <detail::Policy Where, class In, class Out> Out copy(const Where& where, In first, In last, Out out, HOSTCUDA_AT) {
    return detail::do_copy(detail::given(where, "thrust::copy", at, first, out), at, first, last, out);
}
template <class In, class Out> requires(!detail::Policy<In>) Out copy(In first, In last, Out out, HOSTCUDA_AT) { return detail::copied(at, first, last, out); }
template <detail::Policy Where, class In, class N, class Out> Out copy_n(const Where& where, In first, N n, Out out, HOSTCUDA_AT) {
    return detail::do_copy_n(detail::given(where, "thrust::copy_n", at, first, out), at, first, n, out);
}
template <class In, class N, class Out> requires(!detail::Policy<In>) Out copy_n(In first, N n, Out out, HOSTCUDA_AT) { return detail::copied(at, first, first + n, out); }
HOSTCUDA_THRUST(uninitialized_copy, (class In, class Out), (In first, In last, Out out), (first, last, out), (first, out))
HOSTCUDA_THRUST(copy_if, (class In, class Out, class P), (In first, In last, Out out, P wanted), (first, last, out, wanted), (first, out))
HOSTCUDA_THRUST(copy_if, (class In, class S, class Out, class P), (In first, In last, S stencil, Out out, P wanted), (first, last, stencil, out, wanted), (first, stencil, out))
HOSTCUDA_THRUST(gather, (class In, class Items, class Out), (In first, In last, Items items, Out out), (first, last, items, out), (first, items, out))
HOSTCUDA_THRUST(gather_if, (class In, class S, class Items, class Out, class P), (In first, In last, S stencil, Items items, Out out, P wanted),
                (first, last, stencil, items, out, wanted), (first, stencil, items, out))
template <class In, class S, class Items, class Out> auto gather_if(In first, In last, S stencil, Items items, Out out, HOSTCUDA_AT) requires(!detail::Policy<In>) {
    return thrust::gather_if(first, last, stencil, items, out, [](const auto& mark) { return static_cast<bool>(mark); }, at);
}
template <detail::Policy Where, class In, class S, class Items, class Out> auto gather_if(const Where& where, In first, In last, S stencil, Items items, Out out, HOSTCUDA_AT) {
    return thrust::gather_if(where, first, last, stencil, items, out, [](const auto& mark) { return static_cast<bool>(mark); }, at);
}
HOSTCUDA_THRUST(scatter, (class In, class Places, class Out), (In first, In last, Places places, Out out), (first, last, places, out), (first, places, out))
HOSTCUDA_THRUST(scatter_if, (class In, class Places, class S, class Out, class P), (In first, In last, Places places, S stencil, Out out, P wanted),
                (first, last, places, stencil, out, wanted), (first, places, stencil, out))
template <class In, class Places, class S, class Out> void scatter_if(In first, In last, Places places, S stencil, Out out, HOSTCUDA_AT) requires(!detail::Policy<In>) {
    thrust::scatter_if(first, last, places, stencil, out, [](const auto& mark) { return static_cast<bool>(mark); }, at);
}
template <detail::Policy Where, class In, class Places, class S, class Out>
void scatter_if(const Where& where, In first, In last, Places places, S stencil, Out out, HOSTCUDA_AT) {
    thrust::scatter_if(where, first, last, places, stencil, out, [](const auto& mark) { return static_cast<bool>(mark); }, at);
}
HOSTCUDA_THRUST(swap_ranges, (class In, class Out), (In first, In last, Out other), (first, last, other), (first, other))
HOSTCUDA_THRUST(reverse_copy, (class In, class Out), (In first, In last, Out out), (first, last, out), (first, out))
HOSTCUDA_THRUST(reverse, (class In), (In first, In last), (first, last), (first))
}  // namespace thrust

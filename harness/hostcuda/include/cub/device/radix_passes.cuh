// A stable sort by the bits of keys, eight at a time, between two buffers.
#pragma once
#include "../radix_keys.cuh"
#include "two_calls.cuh"

namespace cub {

// Two arrays of which one holds what is current: a sort may leave its result in either.
template <class T> struct DoubleBuffer {
    T* d_buffers[2] = {nullptr, nullptr};
    int selector = 0;
    DoubleBuffer() = default;
    DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
    T* Current() { return d_buffers[selector]; }
    T* Alternate() { return d_buffers[selector ^ 1]; }
};

namespace detail {

template <class K, class V> struct Buffers {
    K* keys;
    V* values;  // null where only keys are sorted
};
// Sorts items [first, last) of `in` into `out`; `spare` holds what is in between. None of them may be the same memory.
template <bool Descending, class K, class V>
void radix_passes(Buffers<const K, const V> in, Buffers<K, V> out, Buffers<K, V> spare, std::int64_t first, std::int64_t last, int begin, int end) {
    constexpr bool with_values = !std::is_same_v<V, NullType>;
    const int passes = begin < end ? (end - begin + 7) / 8 : 0;
    if (passes == 0) {
        for (std::int64_t i = first; i < last; ++i) {
            out.keys[i] = in.keys[i];
            if constexpr (with_values) out.values[i] = in.values[i];
        }
    }
    Buffers<const K, const V> from = in;
    for (int pass = 0; pass < passes; ++pass) {
        const Buffers<K, V> to = (passes - pass) % 2 == 1 ? out : spare;
        const int low = begin + 8 * pass;
        const RadixOrder<K, false> order{low, low + 8 < end ? low + 8 : end};
        std::int64_t starts[256] = {};
        const auto digit = [&](const K& key) { return Descending ? 255 - static_cast<int>(order.digit(key)) : static_cast<int>(order.digit(key)); };
        for (std::int64_t i = first; i < last; ++i) ++starts[digit(from.keys[i])];
        std::int64_t place = first;
        for (auto& start : starts) {
            const std::int64_t found = start;
            start = place;
            place += found;
        }
        for (std::int64_t i = first; i < last; ++i) {
            const K key = from.keys[i];
            const std::int64_t at = starts[digit(key)]++;
            to.keys[at] = key;
            if constexpr (with_values) to.values[at] = from.values[i];
        }
        from = {to.keys, to.values};
    }
}


// A sort of arrays by the two calls of the protocol. `each` is given a function that sorts the items from one number to another.
template <bool Descending, class K, class V, class N, class Each>
cudaError_t radix_sort(const char* part, void* storage, std::size_t& bytes, Buffers<const K, const V> in, Buffers<K, V> out, N count, int begin_bit,
                       int end_bit, cudaStream_t stream, At at, Each each) {
    constexpr std::size_t value_bytes = std::is_same_v<V, NullType> ? 0 : sizeof(V);
    const auto items = static_cast<std::size_t>(count);
    const std::size_t needed = room(items, sizeof(K)) + room(items, value_bytes);
    return two_calls(storage, bytes, needed, part, stream, at, [=]() mutable {
        void* left = storage;
        Buffers<K, V> spare{placed<K>(left, items), nullptr};
        if constexpr (value_bytes != 0) spare.values = placed<V>(left, items);
        each([&](std::int64_t first, std::int64_t last) { radix_passes<Descending, K, V>(in, out, spare, first, last, begin_bit, end_bit); });
    });
}

// What a sort between the arrays of double buffers leaves: the alternate ones are current, unless it was asked for its bytes alone.
template <class... T> cudaError_t turned(cudaError_t error, const void* storage, DoubleBuffer<T>&... buffers) {
    if (storage != nullptr && error == cudaSuccess) ((buffers.selector ^= 1), ...);
    return error;
}

}  // namespace detail
}  // namespace cub

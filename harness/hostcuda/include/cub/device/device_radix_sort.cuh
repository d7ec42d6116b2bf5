// Sorts whole arrays by the bits of their keys; stable, ascending or descending.
#pragma once
#include "radix_passes.cuh"

namespace cub {

struct DeviceRadixSort {
    template <class K, class N>
    static cudaError_t SortKeys(void* storage, std::size_t& bytes, const K* in, K* out, N count, int begin_bit = 0,
                                int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return sort<false, K, NullType>(storage, bytes, {in, nullptr}, {out, nullptr}, count, begin_bit, end_bit, stream, at);
    }
    template <class K, class V, class N>
    static cudaError_t SortPairs(void* storage, std::size_t& bytes, const K* keys_in, K* keys_out, const V* values_in, V* values_out, N count,
                                 int begin_bit = 0, int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return sort<false, K, V>(storage, bytes, {keys_in, values_in}, {keys_out, values_out}, count, begin_bit, end_bit, stream, at);
    }
    template <class K, class N>
    static cudaError_t SortKeys(void* storage, std::size_t& bytes, DoubleBuffer<K>& keys, N count, int begin_bit = 0,
                                int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        const cudaError_t error = SortKeys(storage, bytes, static_cast<const K*>(keys.Current()), keys.Alternate(), count, begin_bit, end_bit, stream, at);
        if (storage != nullptr && error == cudaSuccess) keys.selector ^= 1;
        return error;
    }
    template <class K, class V, class N>
    static cudaError_t SortPairs(void* storage, std::size_t& bytes, DoubleBuffer<K>& keys, DoubleBuffer<V>& values, N count, int begin_bit = 0,
                                 int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        const cudaError_t error = SortPairs(storage, bytes, static_cast<const K*>(keys.Current()), keys.Alternate(), static_cast<const V*>(values.Current()),
                                             values.Alternate(), count, begin_bit, end_bit, stream, at);
        if (storage != nullptr && error == cudaSuccess) keys.selector ^= 1, values.selector ^= 1;
        return error;
    }
    template <class K, class N>
    static cudaError_t SortKeysDescending(void* storage, std::size_t& bytes, const K* in, K* out, N count, int begin_bit = 0,
                                int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return sort<true, K, NullType>(storage, bytes, {in, nullptr}, {out, nullptr}, count, begin_bit, end_bit, stream, at);
    }
    template <class K, class V, class N>
    static cudaError_t SortPairsDescending(void* storage, std::size_t& bytes, const K* keys_in, K* keys_out, const V* values_in, V* values_out, N count,
                                 int begin_bit = 0, int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return sort<true, K, V>(storage, bytes, {keys_in, values_in}, {keys_out, values_out}, count, begin_bit, end_bit, stream, at);
    }
    template <class K, class N>
    static cudaError_t SortKeysDescending(void* storage, std::size_t& bytes, DoubleBuffer<K>& keys, N count, int begin_bit = 0,
                                int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        const cudaError_t error = SortKeysDescending(storage, bytes, static_cast<const K*>(keys.Current()), keys.Alternate(), count, begin_bit, end_bit, stream, at);
        if (storage != nullptr && error == cudaSuccess) keys.selector ^= 1;
        return error;
    }
    template <class K, class V, class N>
    static cudaError_t SortPairsDescending(void* storage, std::size_t& bytes, DoubleBuffer<K>& keys, DoubleBuffer<V>& values, N count, int begin_bit = 0,
                                 int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        const cudaError_t error = SortPairsDescending(storage, bytes, static_cast<const K*>(keys.Current()), keys.Alternate(), static_cast<const V*>(values.Current()),
                                             values.Alternate(), count, begin_bit, end_bit, stream, at);
        if (storage != nullptr && error == cudaSuccess) keys.selector ^= 1, values.selector ^= 1;
        return error;
    }

private:
    template <bool Descending, class K, class V, class N>
    static cudaError_t sort(void* storage, std::size_t& bytes, detail::Buffers<const K, const V> in, detail::Buffers<K, V> out, N count, int begin_bit,
                            int end_bit, cudaStream_t stream, detail::At at) {
        constexpr std::size_t value_bytes = std::is_same_v<V, NullType> ? 0 : sizeof(V);
        const auto items = static_cast<std::size_t>(count);
        const std::size_t needed = detail::room(items, sizeof(K)) + detail::room(items, value_bytes);
        return detail::two_calls(storage, bytes, needed, "cub::DeviceRadixSort", stream, at, [=]() mutable {
            void* left = storage;
            detail::Buffers<K, V> spare{detail::placed<K>(left, items), nullptr};
            if constexpr (value_bytes != 0) spare.values = detail::placed<V>(left, items);
            detail::radix_passes<Descending, K, V>(in, out, spare, 0, static_cast<std::int64_t>(count), begin_bit, end_bit);
        });
    }
};

}  // namespace cub

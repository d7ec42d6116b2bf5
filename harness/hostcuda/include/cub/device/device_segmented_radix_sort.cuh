// Sorts the segments of arrays by the bits of their keys; stable, ascending or descending.
#pragma once
#include "radix_passes.cuh"

namespace cub {

struct DeviceSegmentedRadixSort {
    template <class K, class N, class Begin, class End>
    static cudaError_t SortKeys(void* storage, std::size_t& bytes, const K* in, K* out, N count, int segments, Begin begins, End ends,
                                int begin_bit = 0, int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return sort<false, K, NullType>(storage, bytes, {in, nullptr}, {out, nullptr}, count, segments, begins, ends, begin_bit, end_bit, stream, at);
    }
    template <class K, class V, class N, class Begin, class End>
    static cudaError_t SortPairs(void* storage, std::size_t& bytes, const K* keys_in, K* keys_out, const V* values_in, V* values_out, N count, int segments, Begin begins, End ends,
                                 int begin_bit = 0, int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return sort<false, K, V>(storage, bytes, {keys_in, values_in}, {keys_out, values_out}, count, segments, begins, ends, begin_bit, end_bit, stream, at);
    }
    template <class K, class N, class Begin, class End>
    static cudaError_t SortKeys(void* storage, std::size_t& bytes, DoubleBuffer<K>& keys, N count, int segments, Begin begins, End ends,
                                int begin_bit = 0, int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        const K* in = keys.Current();
        return detail::turned(SortKeys(storage, bytes, in, keys.Alternate(), count, segments, begins, ends, begin_bit, end_bit, stream, at), storage, keys);
    }
    template <class K, class V, class N, class Begin, class End>
    static cudaError_t SortPairs(void* storage, std::size_t& bytes, DoubleBuffer<K>& keys, DoubleBuffer<V>& values, N count, int segments, Begin begins, End ends,
                                 int begin_bit = 0, int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        const K* in = keys.Current();
        const V* carried = values.Current();
        return detail::turned(SortPairs(storage, bytes, in, keys.Alternate(), carried, values.Alternate(), count, segments, begins, ends, begin_bit, end_bit, stream, at),
                              storage, keys, values);
    }
    template <class K, class N, class Begin, class End>
    static cudaError_t SortKeysDescending(void* storage, std::size_t& bytes, const K* in, K* out, N count, int segments, Begin begins, End ends,
                                int begin_bit = 0, int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return sort<true, K, NullType>(storage, bytes, {in, nullptr}, {out, nullptr}, count, segments, begins, ends, begin_bit, end_bit, stream, at);
    }
    template <class K, class V, class N, class Begin, class End>
    static cudaError_t SortPairsDescending(void* storage, std::size_t& bytes, const K* keys_in, K* keys_out, const V* values_in, V* values_out, N count, int segments, Begin begins, End ends,
                                 int begin_bit = 0, int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return sort<true, K, V>(storage, bytes, {keys_in, values_in}, {keys_out, values_out}, count, segments, begins, ends, begin_bit, end_bit, stream, at);
    }
    template <class K, class N, class Begin, class End>
    static cudaError_t SortKeysDescending(void* storage, std::size_t& bytes, DoubleBuffer<K>& keys, N count, int segments, Begin begins, End ends,
                                int begin_bit = 0, int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        const K* in = keys.Current();
        return detail::turned(SortKeysDescending(storage, bytes, in, keys.Alternate(), count, segments, begins, ends, begin_bit, end_bit, stream, at), storage, keys);
    }
    template <class K, class V, class N, class Begin, class End>
    static cudaError_t SortPairsDescending(void* storage, std::size_t& bytes, DoubleBuffer<K>& keys, DoubleBuffer<V>& values, N count, int segments, Begin begins, End ends,
                                 int begin_bit = 0, int end_bit = 8 * static_cast<int>(sizeof(K)), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        const K* in = keys.Current();
        const V* carried = values.Current();
        return detail::turned(SortPairsDescending(storage, bytes, in, keys.Alternate(), carried, values.Alternate(), count, segments, begins, ends, begin_bit, end_bit, stream, at),
                              storage, keys, values);
    }

private:
    template <bool Descending, class K, class V, class N, class Begin, class End>
    static cudaError_t sort(void* storage, std::size_t& bytes, detail::Buffers<const K, const V> in, detail::Buffers<K, V> out, N count, int segments,
                            Begin begins, End ends, int begin_bit, int end_bit, cudaStream_t stream, detail::At at) {
        return detail::radix_sort<Descending>("cub::DeviceSegmentedRadixSort", storage, bytes, in, out, count, begin_bit, end_bit, stream, at,
                                              [=](const auto& from_to) {
                                                  for (int s = 0; s < segments; ++s) from_to(begins[s], ends[s]);
                                              });
    }
};

}  // namespace cub

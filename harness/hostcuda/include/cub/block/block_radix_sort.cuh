// Sorts the keys of a block's threads, with values that go along; stable, by all bits or by some.
#pragma once
#include "../radix_keys.cuh"
#include "block_scan.cuh"
#include "merge_ranks.cuh"

namespace cub {

template <class Key, int X, int N, class Value = NullType, int = 4, bool = true, BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS,
          cudaSharedMemConfig = cudaSharedMemBankSizeFourByte, int Y = 1, int Z = 1, int = 0>
class BlockRadixSort {
    static constexpr int threads = X * Y * Z, bits = 8 * static_cast<int>(sizeof(Key));
    static constexpr bool only_keys = std::is_same_v<Value, NullType>;

public:
    struct TempStorage {
        union {
            detail::Raw<Key, threads * N> keys;
            detail::Raw<Value, threads * N> values;
        };
    };
    BlockRadixSort() : storage_(detail::own_storage<BlockRadixSort, TempStorage>()) {}
    explicit BlockRadixSort(TempStorage& storage) : storage_(storage) {}

    void Sort(Key (&keys)[N], int begin = 0, int end = bits, HOSTCUDA_AT) { sort<false, false>(keys, nullptr, begin, end, at); }
    void SortDescending(Key (&keys)[N], int begin = 0, int end = bits, HOSTCUDA_AT) { sort<true, false>(keys, nullptr, begin, end, at); }
    void SortBlockedToStriped(Key (&keys)[N], int begin = 0, int end = bits, HOSTCUDA_AT) { sort<false, true>(keys, nullptr, begin, end, at); }
    void SortDescendingBlockedToStriped(Key (&keys)[N], int begin = 0, int end = bits, HOSTCUDA_AT) { sort<true, true>(keys, nullptr, begin, end, at); }
    void Sort(Key (&keys)[N], Value (&values)[N], int begin = 0, int end = bits, HOSTCUDA_AT) { sort<false, false>(keys, &values, begin, end, at); }
    void SortDescending(Key (&keys)[N], Value (&values)[N], int begin = 0, int end = bits, HOSTCUDA_AT) { sort<true, false>(keys, &values, begin, end, at); }
    void SortBlockedToStriped(Key (&keys)[N], Value (&values)[N], int begin = 0, int end = bits, HOSTCUDA_AT) { sort<false, true>(keys, &values, begin, end, at); }
    void SortDescendingBlockedToStriped(Key (&keys)[N], Value (&values)[N], int begin = 0, int end = bits, HOSTCUDA_AT) { sort<true, true>(keys, &values, begin, end, at); }

private:
    template <bool Descending, bool Striped> void sort(Key (&keys)[N], Value (*values)[N], int begin, int end, detail::At at) {
        const int rank = detail::block_rank();
        const auto mine = [rank](int i) { return Striped ? rank + i * threads : rank * N + i; };
        int places[N];
        detail::merge_ranks<threads>(storage_.keys, keys, places, detail::RadixOrder<Key, Descending>{begin, end}, at.line);
        for (int i = 0; i < N; ++i) keys[i] = storage_.keys[mine(i)];
        if constexpr (!only_keys) {
            if (values == nullptr) return;
            __syncthreads(at.line);
            for (int i = 0; i < N; ++i) storage_.values[places[i]] = (*values)[i];
            __syncthreads(at.line);
            for (int i = 0; i < N; ++i) (*values)[i] = storage_.values[mine(i)];
        }
    }
    TempStorage& storage_;
};

}  // namespace cub

// Sorts the keys of a block's threads by a comparison, with values that go along; stable, whole or with the valid items first.
#pragma once
#include "merge_ranks.cuh"

namespace cub {

template <class Key, int X, int N, class Value = NullType, int Y = 1, int Z = 1> class BlockMergeSort {
    static constexpr int threads = X * Y * Z;

public:
    struct TempStorage {
        union {
            detail::Raw<Key, threads * N> keys;
            detail::Raw<Value, threads * N> values;
        };
    };
    BlockMergeSort() : storage_(detail::own_storage<BlockMergeSort, TempStorage>()) {}
    explicit BlockMergeSort(TempStorage& storage) : storage_(storage) {}

    template <class F> void Sort(Key (&keys)[N], F before, HOSTCUDA_AT) { sort(keys, static_cast<Value(*)[N]>(nullptr), before, at); }
    template <class F> void Sort(Key (&keys)[N], Value (&values)[N], F before, HOSTCUDA_AT) { sort(keys, &values, before, at); }
    template <class F> void Sort(Key (&keys)[N], F before, int valid, Key last, HOSTCUDA_AT) {
        fill(keys, valid, last);
        Sort(keys, before, at);
    }
    template <class F> void Sort(Key (&keys)[N], Value (&values)[N], F before, int valid, Key last, HOSTCUDA_AT) {
        fill(keys, valid, last);
        Sort(keys, values, before, at);
    }
    template <class F> void StableSort(Key (&keys)[N], F before, HOSTCUDA_AT) { Sort(keys, before, at); }
    template <class F> void StableSort(Key (&keys)[N], Value (&values)[N], F before, HOSTCUDA_AT) { Sort(keys, values, before, at); }
    template <class F> void StableSort(Key (&keys)[N], F before, int valid, Key last, HOSTCUDA_AT) { Sort(keys, before, valid, last, at); }
    template <class F> void StableSort(Key (&keys)[N], Value (&values)[N], F before, int valid, Key last, HOSTCUDA_AT) {
        Sort(keys, values, before, valid, last, at);
    }

private:
    static void fill(Key (&keys)[N], int valid, const Key& last) {
        for (int i = 0; i < N; ++i)
            if (detail::block_rank() * N + i >= valid) keys[i] = last;
    }
    template <class F> void sort(Key (&keys)[N], Value (*values)[N], F before, detail::At at) {
        const int rank = detail::block_rank();
        int places[N];
        detail::merge_ranks<threads>(storage_.keys, keys, places, before, at.line);
        for (int i = 0; i < N; ++i) keys[i] = storage_.keys[rank * N + i];
        if (values == nullptr) return;
        __syncthreads(at.line);
        for (int i = 0; i < N; ++i) storage_.values[places[i]] = (*values)[i];
        __syncthreads(at.line);
        for (int i = 0; i < N; ++i) (*values)[i] = storage_.values[rank * N + i];
    }
    TempStorage& storage_;
};

}  // namespace cub

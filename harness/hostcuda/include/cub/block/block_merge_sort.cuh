// Sorts the keys of a block's threads by a comparison, with values that go along; stable, all of them or the valid ones, which come first. What stands
// behind those is not to be relied on: CUB leaves there some of the defaults that it is given and some of what was there before (seen on an H200,
// whatever its documentation says). Here all of it stays as it was, so that nobody takes it for the defaults.
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

    template <class F> void Sort(Key (&keys)[N], F before, HOSTCUDA_AT) { sort(keys, static_cast<Value(*)[N]>(nullptr), before, threads * N, at); }
    template <class F> void Sort(Key (&keys)[N], Value (&values)[N], F before, HOSTCUDA_AT) { sort(keys, &values, before, threads * N, at); }
    template <class F> void Sort(Key (&keys)[N], F before, int valid, Key, HOSTCUDA_AT) {
        sort(keys, static_cast<Value(*)[N]>(nullptr), before, valid, at);
    }
    template <class F> void Sort(Key (&keys)[N], Value (&values)[N], F before, int valid, Key, HOSTCUDA_AT) { sort(keys, &values, before, valid, at); }
    template <class F> void StableSort(Key (&keys)[N], F before, HOSTCUDA_AT) { Sort(keys, before, at); }
    template <class F> void StableSort(Key (&keys)[N], Value (&values)[N], F before, HOSTCUDA_AT) { Sort(keys, values, before, at); }
    template <class F> void StableSort(Key (&keys)[N], F before, int valid, Key last, HOSTCUDA_AT) { Sort(keys, before, valid, last, at); }
    template <class F> void StableSort(Key (&keys)[N], Value (&values)[N], F before, int valid, Key last, HOSTCUDA_AT) {
        Sort(keys, values, before, valid, last, at);
    }

private:
    template <class F> void sort(Key (&keys)[N], Value (*values)[N], F before, int valid, detail::At at) {
        const int rank = detail::block_rank();
        int places[N];
        detail::merge_ranks<threads>(storage_.keys, keys, places, before, at.line, valid);
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

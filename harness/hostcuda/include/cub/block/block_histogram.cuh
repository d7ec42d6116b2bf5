// Histograms of a block's items, in memory that the caller gives.
#pragma once
#include "../util.cuh"

namespace cub {

enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };

template <class T, int X, int N, int Bins, BlockHistogramAlgorithm A = BLOCK_HISTO_SORT, int Y = 1, int Z = 1, int = 0> class BlockHistogram {
    static constexpr int threads = X * Y * Z;

public:
    // Sorting passes all items through the storage, atomic updates need none.
    struct TempStorage { detail::Raw<T, A == BLOCK_HISTO_SORT ? threads * N : 1> items; };
    BlockHistogram() : storage_(detail::own_storage<BlockHistogram, TempStorage>()) {}
    explicit BlockHistogram(TempStorage& storage) : storage_(storage) {}

    template <class C> void InitHistogram(C histogram[Bins]) {
        for (int i = detail::block_rank(); i < Bins; i += threads) histogram[i] = 0;
    }
    template <class C> void Histogram(T (&items)[N], C histogram[Bins], HOSTCUDA_AT) {
        InitHistogram(histogram);
        __syncthreads(at.line);
        Composite(items, histogram, at);
    }
    // Adds to what is there.
    template <class C> void Composite(T (&items)[N], C histogram[Bins], HOSTCUDA_AT) {
        const int rank = detail::block_rank();
        if constexpr (A == BLOCK_HISTO_SORT) {
            for (int i = 0; i < N; ++i) storage_.items[(threads - 1 - rank) * N + i] = items[i];
            __syncthreads(at.line);
            for (int i = 0; i < N; ++i) atomicAdd(histogram + storage_.items[rank * N + i], C(1));
        } else {
            for (int i = 0; i < N; ++i) atomicAdd(histogram + items[i], C(1));
        }
    }

private:
    TempStorage& storage_;
};

}  // namespace cub

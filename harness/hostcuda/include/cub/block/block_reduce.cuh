// Reductions over a block: each thread gives values, thread 0 has the result.
#pragma once
#include "../util.cuh"

namespace cub {

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };

template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int = 0> class BlockReduce {
public:
    struct TempStorage { T values[X * Y * Z]; };
    BlockReduce() : storage_(detail::own_storage<BlockReduce, TempStorage>()) {}
    explicit BlockReduce(TempStorage& storage) : storage_(storage) {}
    // The result is defined in thread 0 only.
    template <class F> T Reduce(T value, F combine, int valid, HOSTCUDA_LINE) {
        const int rank = detail::block_rank();
        storage_.values[rank] = value;
        __syncthreads(line);
        if (rank != 0) return value;
        for (int i = 1; i < valid; ++i) value = combine(value, storage_.values[i]);
        return value;
    }
    template <class F> T Reduce(T value, F combine) { return Reduce(value, combine, X * Y * Z, __builtin_LINE()); }
    template <int N, class F> T Reduce(T (&values)[N], F combine) {
        T own = values[0];
        for (int i = 1; i < N; ++i) own = combine(own, values[i]);
        return Reduce(own, combine);
    }
    T Sum(T value) { return Reduce(value, cub::Sum()); }
    T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }
    template <int N> T Sum(T (&values)[N]) { return Reduce(values, cub::Sum()); }

private:
    TempStorage& storage_;
};

}  // namespace cub

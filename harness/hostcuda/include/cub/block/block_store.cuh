// Stores of several items a thread from registers to memory: blocked and striped arrangements, whole or guarded, directly or by way of
// shared memory.
#pragma once
#include "block_exchange.cuh"

namespace cub {

enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

namespace detail {
template <class T, int N, class Out> inline void store_items(Out out, T (&items)[N], int first, int step) {
    for (int i = 0; i < N; ++i) out[first + i * step] = items[i];
}
template <class T, int N, class Out> inline void store_items(Out out, T (&items)[N], int first, int step, int valid) {
    for (int i = 0; i < N; ++i)
        if (first + i * step < valid) out[first + i * step] = items[i];
}
}  // namespace detail

// `valid`: nothing, or the number of valid items.
template <class T, int N, class Out, class... R> inline void StoreDirectBlocked(int rank, Out out, T (&items)[N], R... valid) {
    detail::store_items(out, items, rank * N, 1, valid...);
}
template <int Threads, class T, int N, class Out, class... R> inline void StoreDirectStriped(int rank, Out out, T (&items)[N], R... valid) {
    detail::store_items(out, items, rank, Threads, valid...);
}
template <class T, int N, class Out, class... R> inline void StoreDirectWarpStriped(int rank, Out out, T (&items)[N], R... valid) {
    detail::store_items(out, items, rank / 32 * 32 * N + rank % 32, 32, valid...);
}
template <class T, int N> inline void StoreDirectBlockedVectorized(int rank, T* out, T (&items)[N]) { StoreDirectBlocked(rank, out, items); }

template <class T, int X, int N, BlockStoreAlgorithm A = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1, int = 0> class BlockStore {
    static constexpr bool by_block = A == BLOCK_STORE_TRANSPOSE, by_warp = A == BLOCK_STORE_WARP_TRANSPOSE || A == BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED;
    static_assert(!by_warp || X * Y * Z % 32 == 0, "a warp transpose takes whole warps");
    using Exchange = BlockExchange<T, X, N, A == BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED, Y, Z>;

public:
    using TempStorage = std::conditional_t<by_block || by_warp, typename Exchange::TempStorage, NullType>;
    BlockStore() : storage_(detail::own_storage<BlockStore, TempStorage>()) {}
    explicit BlockStore(TempStorage& storage) : storage_(storage) {}
    template <class Out> void Store(Out out, T (&items)[N], HOSTCUDA_AT) { store(out, items, at); }
    template <class Out> void Store(Out out, T (&items)[N], int valid, HOSTCUDA_AT) { store(out, items, at, valid); }

private:
    template <class Out, class... R> void store(Out out, T (&items)[N], detail::At at, R... valid) {
        const int rank = detail::block_rank();
        if constexpr (by_block) {
            Exchange(storage_).BlockedToStriped(items, items, at);
            StoreDirectStriped<X * Y * Z>(rank, out, items, valid...);
        } else if constexpr (by_warp) {
            Exchange(storage_).BlockedToWarpStriped(items, items, at);
            StoreDirectWarpStriped(rank, out, items, valid...);
        } else if constexpr (A == BLOCK_STORE_STRIPED) {
            StoreDirectStriped<X * Y * Z>(rank, out, items, valid...);
        } else {
            StoreDirectBlocked(rank, out, items, valid...);
        }
    }
    TempStorage& storage_;
};

}  // namespace cub

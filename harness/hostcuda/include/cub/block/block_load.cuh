// Loads of several items a thread from memory into registers: blocked and striped arrangements, whole or guarded, directly or by way of
// shared memory.
#pragma once
#include "block_exchange.cuh"

namespace cub {

enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};

namespace detail {
// Item i of a thread lies at `first + i * step` of the tile.
template <class T, int N, class In> inline void load_items(In in, T (&items)[N], int first, int step) {
    for (int i = 0; i < N; ++i) items[i] = in[first + i * step];
}
template <class T, int N, class In> inline void load_items(In in, T (&items)[N], int first, int step, int valid) {
    for (int i = 0; i < N; ++i)
        if (first + i * step < valid) items[i] = in[first + i * step];
}
template <class T, int N, class In, class D> inline void load_items(In in, T (&items)[N], int first, int step, int valid, const D& other) {
    for (int i = 0; i < N; ++i) {
        if (first + i * step < valid) items[i] = in[first + i * step];
        else items[i] = static_cast<T>(other);
    }
}
inline int warp_striped_start(int rank, int items) { return rank / 32 * 32 * items + rank % 32; }
}  // namespace detail

// `rest`: nothing, the number of valid items, or that and what stands for the others.
template <class T, int N, class In, class... R> inline void LoadDirectBlocked(int rank, In in, T (&items)[N], R... rest) {
    detail::load_items(in, items, rank * N, 1, rest...);
}
template <int Threads, class T, int N, class In, class... R> inline void LoadDirectStriped(int rank, In in, T (&items)[N], R... rest) {
    detail::load_items(in, items, rank, Threads, rest...);
}
template <class T, int N, class In, class... R> inline void LoadDirectWarpStriped(int rank, In in, T (&items)[N], R... rest) {
    detail::load_items(in, items, detail::warp_striped_start(rank, N), 32, rest...);
}
template <class T, int N> inline void LoadDirectBlockedVectorized(int rank, T* in, T (&items)[N]) { LoadDirectBlocked(rank, in, items); }

template <class T, int X, int N, BlockLoadAlgorithm A = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1, int = 0> class BlockLoad {
    static constexpr bool by_block = A == BLOCK_LOAD_TRANSPOSE, by_warp = A == BLOCK_LOAD_WARP_TRANSPOSE || A == BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED;
    static_assert(!by_warp || X * Y * Z % 32 == 0, "a warp transpose takes whole warps");
    using Exchange = BlockExchange<T, X, N, A == BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED, Y, Z>;

public:
    using TempStorage = std::conditional_t<by_block || by_warp, typename Exchange::TempStorage, NullType>;
    BlockLoad() : storage_(detail::own_storage<BlockLoad, TempStorage>()) {}
    explicit BlockLoad(TempStorage& storage) : storage_(storage) {}
    template <class In> void Load(In in, T (&items)[N], HOSTCUDA_AT) { load(in, items, at); }
    template <class In> void Load(In in, T (&items)[N], int valid, HOSTCUDA_AT) { load(in, items, at, valid); }
    template <class In, class D> void Load(In in, T (&items)[N], int valid, D other, HOSTCUDA_AT) { load(in, items, at, valid, other); }

private:
    template <class In, class... R> void load(In in, T (&items)[N], detail::At at, R... rest) {
        const int rank = detail::block_rank();
        if constexpr (by_block) {
            LoadDirectStriped<X * Y * Z>(rank, in, items, rest...);
            Exchange(storage_).StripedToBlocked(items, items, at);
        } else if constexpr (by_warp) {
            LoadDirectWarpStriped(rank, in, items, rest...);
            Exchange(storage_).WarpStripedToBlocked(items, items, at);
        } else if constexpr (A == BLOCK_LOAD_STRIPED) {
            LoadDirectStriped<X * Y * Z>(rank, in, items, rest...);
        } else {
            LoadDirectBlocked(rank, in, items, rest...);
        }
    }
    TempStorage& storage_;
};

}  // namespace cub

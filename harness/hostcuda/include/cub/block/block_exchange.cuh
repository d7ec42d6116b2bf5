// Rearranges the items of a block's threads by way of shared memory: blocked (a thread's items are neighbours), striped (they lie a block apart),
// warp-striped (a warp apart), and by ranks that the threads name.
#pragma once
#include "../util.cuh"

namespace cub {

template <class T, int X, int N, bool Timesliced = false, int Y = 1, int Z = 1, int = 0> class BlockExchange {
    static constexpr int threads = X * Y * Z, count = threads * N;
    static constexpr int in_warp = threads < 32 ? threads : 32;

public:
    struct TempStorage { detail::Raw<T, Timesliced ? in_warp * N : count> values; };
    BlockExchange() : storage_(detail::own_storage<BlockExchange, TempStorage>()) {}
    explicit BlockExchange(TempStorage& storage) : storage_(storage) {}

    template <class U> void StripedToBlocked(const T (&in)[N], U (&out)[N], HOSTCUDA_AT) {
        by_block(in, out, at, [](int i) { return rank() + i * threads; }, [](int i) { return rank() * N + i; });
    }
    template <class U> void BlockedToStriped(const T (&in)[N], U (&out)[N], HOSTCUDA_AT) {
        by_block(in, out, at, [](int i) { return rank() * N + i; }, [](int i) { return rank() + i * threads; });
    }
    template <class U> void WarpStripedToBlocked(const T (&in)[N], U (&out)[N], HOSTCUDA_AT) {
        by_warp(in, out, at, [](int lane, int i) { return lane + i * in_warp; }, [](int lane, int i) { return lane * N + i; });
    }
    template <class U> void BlockedToWarpStriped(const T (&in)[N], U (&out)[N], HOSTCUDA_AT) {
        by_warp(in, out, at, [](int lane, int i) { return lane * N + i; }, [](int lane, int i) { return lane + i * in_warp; });
    }
    template <class U, class R> void ScatterToBlocked(const T (&in)[N], U (&out)[N], R (&ranks)[N], HOSTCUDA_AT) {
        by_block(in, out, at, [&](int i) { return static_cast<int>(ranks[i]); }, [](int i) { return rank() * N + i; });
    }
    template <class U, class R> void ScatterToStriped(const T (&in)[N], U (&out)[N], R (&ranks)[N], HOSTCUDA_AT) {
        by_block(in, out, at, [&](int i) { return static_cast<int>(ranks[i]); }, [](int i) { return rank() + i * threads; });
    }
    // Items with a negative rank, or without their flag, go nowhere; where none came the result is not defined.
    template <class U, class R> void ScatterToStripedGuarded(const T (&in)[N], U (&out)[N], R (&ranks)[N], HOSTCUDA_AT) {
        scatter(in, out, at, [&](int i) { return ranks[i] >= 0 ? static_cast<int>(ranks[i]) : -1; });
    }
    template <class U, class R, class F> void ScatterToStripedFlagged(const T (&in)[N], U (&out)[N], R (&ranks)[N], F (&flags)[N], HOSTCUDA_AT) {
        scatter(in, out, at, [&](int i) { return flags[i] ? static_cast<int>(ranks[i]) : -1; });
    }
    // The same in place.
    void StripedToBlocked(T (&items)[N], HOSTCUDA_AT) { StripedToBlocked(items, items, at); }
    void BlockedToStriped(T (&items)[N], HOSTCUDA_AT) { BlockedToStriped(items, items, at); }
    void WarpStripedToBlocked(T (&items)[N], HOSTCUDA_AT) { WarpStripedToBlocked(items, items, at); }
    void BlockedToWarpStriped(T (&items)[N], HOSTCUDA_AT) { BlockedToWarpStriped(items, items, at); }
    template <class R> void ScatterToBlocked(T (&items)[N], R (&ranks)[N], HOSTCUDA_AT) { ScatterToBlocked(items, items, ranks, at); }
    template <class R> void ScatterToStriped(T (&items)[N], R (&ranks)[N], HOSTCUDA_AT) { ScatterToStriped(items, items, ranks, at); }

private:
    static int rank() { return detail::block_rank(); }
    template <class U, class W, class R> void by_block(const T (&in)[N], U (&out)[N], detail::At at, W to, R from) {
        if constexpr (Timesliced && (threads > 32)) {
            by_slices(in, out, at, to, from);
        } else {
            for (int i = 0; i < N; ++i) storage_.values[to(i)] = in[i];
            __syncthreads(at.line);
            for (int i = 0; i < N; ++i) out[i] = storage_.values[from(i)];
        }
    }
    // The storage holds one warp's worth: a part of the tile after the other passes through it.
    template <class U, class W, class R> void by_slices(const T (&in)[N], U (&out)[N], detail::At at, W to, R from) {
        T taken[N];
        for (int first = 0; first < count; first += in_warp * N) {
            if (first != 0) __syncthreads(at.line);
            for (int i = 0; i < N; ++i)
                if (to(i) >= first && to(i) < first + in_warp * N) storage_.values[to(i) - first] = in[i];
            __syncthreads(at.line);
            for (int i = 0; i < N; ++i)
                if (from(i) >= first && from(i) < first + in_warp * N) taken[i] = storage_.values[from(i) - first];
        }
        for (int i = 0; i < N; ++i) out[i] = taken[i];
    }
    template <class U, class W, class R> void by_warp(const T (&in)[N], U (&out)[N], detail::At at, W to, R from) {
        const int warp = rank() / 32, lane = rank() % 32;
        const int lanes = threads - warp * 32 < 32 ? threads - warp * 32 : 32;
        const unsigned mask = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1u;
        const auto exchange = [&](int first) {
            for (int i = 0; i < N; ++i) storage_.values[first + to(lane, i)] = in[i];
            __syncwarp(mask, at.line);
            for (int i = 0; i < N; ++i) out[i] = storage_.values[first + from(lane, i)];
        };
        if constexpr (Timesliced) {
            for (int turn = 0; turn < (threads + 31) / 32; ++turn) {
                if (turn != 0) __syncthreads(at.line);
                if (turn == warp) exchange(0);
            }
        } else {
            exchange(warp * 32 * N);
        }
    }
    // Where nothing came the storage holds what it held: reading it would be a finding, so only what came is read.
    template <class U, class W> void scatter(const T (&in)[N], U (&out)[N], detail::At at, W to) {
        static_assert(!Timesliced, "scattering by guarded ranks, timesliced, is not emulated");
        for (int i = 0; i < N; ++i)
            if (to(i) >= 0) storage_.values[to(i)] = in[i];
        __syncthreads(at.line);
        for (int i = 0; i < N; ++i) take(&out[i], &storage_.values[rank() + i * threads]);
    }
    template <class U> HOSTCUDA_UNCHECKED static void take(U* to, const T* from) { *to = *from; }
    TempStorage& storage_;
};

}  // namespace cub

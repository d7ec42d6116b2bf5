// Flags where a block's items differ from their neighbours: heads and tails of runs.
#pragma once
#include "../util.cuh"

namespace cub {

template <class T, int X, int Y = 1, int Z = 1, int = 0> class BlockDiscontinuity {
    static constexpr int threads = X * Y * Z;

public:
    struct TempStorage { detail::Raw<T, threads> first, last; };
    BlockDiscontinuity() : storage_(detail::own_storage<BlockDiscontinuity, TempStorage>()) {}
    explicit BlockDiscontinuity(TempStorage& storage) : storage_(storage) {}

    // Without a predecessor of the tile its first item is a head, without a successor its last item is a tail.
    template <int N, class F, class Op> void FlagHeads(F (&heads)[N], T (&items)[N], Op differ, HOSTCUDA_AT) {
        share(items, at), flag_heads(heads, items, differ, nullptr);
    }
    template <int N, class F, class Op> void FlagHeads(F (&heads)[N], T (&items)[N], Op differ, T before, HOSTCUDA_AT) {
        share(items, at), flag_heads(heads, items, differ, &before);
    }
    template <int N, class F, class Op> void FlagTails(F (&tails)[N], T (&items)[N], Op differ, HOSTCUDA_AT) {
        share(items, at), flag_tails(tails, items, differ, nullptr);
    }
    template <int N, class F, class Op> void FlagTails(F (&tails)[N], T (&items)[N], Op differ, T after, HOSTCUDA_AT) {
        share(items, at), flag_tails(tails, items, differ, &after);
    }
    template <int N, class F, class Op> void FlagHeadsAndTails(F (&heads)[N], F (&tails)[N], T (&items)[N], Op differ, HOSTCUDA_AT) {
        share(items, at), flag_heads(heads, items, differ, nullptr), flag_tails(tails, items, differ, nullptr);
    }
    template <int N, class F, class Op> void FlagHeadsAndTails(F (&heads)[N], F (&tails)[N], T after, T (&items)[N], Op differ, HOSTCUDA_AT) {
        share(items, at), flag_heads(heads, items, differ, nullptr), flag_tails(tails, items, differ, &after);
    }
    template <int N, class F, class Op> void FlagHeadsAndTails(F (&heads)[N], T before, F (&tails)[N], T (&items)[N], Op differ, HOSTCUDA_AT) {
        share(items, at), flag_heads(heads, items, differ, &before), flag_tails(tails, items, differ, nullptr);
    }
    template <int N, class F, class Op>
    void FlagHeadsAndTails(F (&heads)[N], T before, F (&tails)[N], T after, T (&items)[N], Op differ, HOSTCUDA_AT) {
        share(items, at), flag_heads(heads, items, differ, &before), flag_tails(tails, items, differ, &after);
    }

private:
    template <int N> void share(T (&items)[N], detail::At at) {
        storage_.first[detail::block_rank()] = items[0];
        storage_.last[detail::block_rank()] = items[N - 1];
        __syncthreads(at.line);
    }
    // `differ` may ask for the position of the second item in the tile.
    template <class Op> static bool ask(Op& differ, const T& a, const T& b, int position) {
        if constexpr (std::is_invocable_v<Op&, const T&, const T&, int>) return differ(a, b, position);
        else return differ(a, b);
    }
    template <int N, class F, class Op> void flag_heads(F (&heads)[N], T (&items)[N], Op differ, const T* before) {
        const int rank = detail::block_rank();
        for (int i = 0; i < N; ++i) {
            if (i != 0) heads[i] = ask(differ, items[i - 1], items[i], rank * N + i);
            else if (rank != 0) heads[0] = ask(differ, storage_.last[rank - 1], items[0], rank * N);
            else heads[0] = before == nullptr ? true : ask(differ, *before, items[0], 0);
        }
    }
    template <int N, class F, class Op> void flag_tails(F (&tails)[N], T (&items)[N], Op differ, const T* after) {
        const int rank = detail::block_rank();
        for (int i = 0; i < N; ++i) {
            const int next = rank * N + i + 1;
            if (i != N - 1) tails[i] = ask(differ, items[i], items[i + 1], next);
            else if (rank != threads - 1) tails[i] = ask(differ, items[i], storage_.first[rank + 1], next);
            else tails[i] = after == nullptr ? true : ask(differ, items[i], *after, next);
        }
    }
    TempStorage& storage_;
};

}  // namespace cub

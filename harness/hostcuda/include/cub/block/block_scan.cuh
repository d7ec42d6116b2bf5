// Prefix sums over a block, of one or several values a thread, with a callback that carries on from tile to tile.
#pragma once
#include "../util.cuh"

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

// `F` combines two values, `P` is given the block's total by the first warp and gives (from its first thread) what comes before the block.
template <class F, class T> concept Combines = std::is_invocable_r_v<T, F&, T, T>;
template <class P, class T> concept GivesPrefix = std::is_invocable_r_v<T, P&, T>;

template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0> class BlockScan {
public:
    struct TempStorage { T values[X * Y * Z]; T prefix; };
    BlockScan() : storage_(detail::own_storage<BlockScan, TempStorage>()) {}
    explicit BlockScan(TempStorage& storage) : storage_(storage) {}
    template <Combines<T> F> void InclusiveScan(T value, T& out, F combine, T& total) { scan(value, out, combine, nullptr, true, total); }
    template <Combines<T> F> void InclusiveScan(T value, T& out, F combine) { T total; InclusiveScan(value, out, combine, total); }
    template <Combines<T> F, GivesPrefix<T> P> void InclusiveScan(T value, T& out, F combine, P& prefix) {
        const T before = scan_after(value, out, combine, prefix, true);
        out = combine(before, out);
    }
    template <Combines<T> F> void ExclusiveScan(T value, T& out, T initial, F combine, T& total) { scan(value, out, combine, &initial, false, total); }
    template <Combines<T> F> void ExclusiveScan(T value, T& out, T initial, F combine) { T total; ExclusiveScan(value, out, initial, combine, total); }
    // Without an initial value the first thread's result is not defined: it is left as it was.
    template <Combines<T> F> void ExclusiveScan(T value, T& out, F combine, T& total) { scan(value, out, combine, nullptr, false, total); }
    template <Combines<T> F> void ExclusiveScan(T value, T& out, F combine) { T total; ExclusiveScan(value, out, combine, total); }
    template <Combines<T> F, GivesPrefix<T> P> void ExclusiveScan(T value, T& out, F combine, P& prefix) {
        T own;
        const T before = scan_after(value, own, combine, prefix, false);
        out = detail::block_rank() == 0 ? before : combine(before, own);
    }
    void InclusiveSum(T value, T& out) { InclusiveScan(value, out, cub::Sum()); }
    void InclusiveSum(T value, T& out, T& total) { InclusiveScan(value, out, cub::Sum(), total); }
    template <GivesPrefix<T> P> void InclusiveSum(T value, T& out, P& prefix) { InclusiveScan(value, out, cub::Sum(), prefix); }
    void ExclusiveSum(T value, T& out) { ExclusiveScan(value, out, T(0), cub::Sum()); }
    void ExclusiveSum(T value, T& out, T& total) { ExclusiveScan(value, out, T(0), cub::Sum(), total); }
    template <GivesPrefix<T> P> void ExclusiveSum(T value, T& out, P& prefix) { ExclusiveScan(value, out, cub::Sum(), prefix); }

    // Several consecutive items a thread: `rest` is what follows the arrays above.
    template <int N, Combines<T> F, class... R> void InclusiveScan(T (&in)[N], T (&out)[N], F combine, R&... rest) {
        if constexpr (sizeof...(R) == 1 && (GivesPrefix<R, T> && ...)) {
            T before;
            ExclusiveScan(of_items(in, combine), before, combine, rest...);
            run(in, out, combine, &before, true);
        } else {
            T before, total;
            ExclusiveScan(of_items(in, combine), before, combine, total);
            run(in, out, combine, detail::block_rank() == 0 ? nullptr : &before, true);
            ((rest = total), ...);
        }
    }
    template <int N, Combines<T> F, class... R> void ExclusiveScan(T (&in)[N], T (&out)[N], T initial, F combine, R&... rest) {
        T before;
        ExclusiveScan(of_items(in, combine), before, initial, combine, rest...);
        run(in, out, combine, &before, false);
    }
    template <int N, Combines<T> F, GivesPrefix<T> P> void ExclusiveScan(T (&in)[N], T (&out)[N], F combine, P& prefix) {
        T before;
        ExclusiveScan(of_items(in, combine), before, combine, prefix);
        run(in, out, combine, &before, false);
    }
    template <int N, class... R> void InclusiveSum(T (&in)[N], T (&out)[N], R&... rest) { InclusiveScan(in, out, cub::Sum(), rest...); }
    template <int N> void ExclusiveSum(T (&in)[N], T (&out)[N]) { ExclusiveScan(in, out, T(0), cub::Sum()); }
    template <int N> void ExclusiveSum(T (&in)[N], T (&out)[N], T& total) { ExclusiveScan(in, out, T(0), cub::Sum(), total); }
    template <int N, GivesPrefix<T> P> void ExclusiveSum(T (&in)[N], T (&out)[N], P& prefix) { ExclusiveScan(in, out, cub::Sum(), prefix); }

private:
    template <class F> void scan(T value, T& out, F combine, const T* initial, bool inclusive, T& total, HOSTCUDA_LINE) {
        const int rank = detail::block_rank();
        storage_.values[rank] = value;
        __syncthreads(line);
        T running = storage_.values[0];
        for (int i = 1; i < X * Y * Z; ++i) {
            if (i == rank + (inclusive ? 1 : 0)) out = initial == nullptr ? running : combine(*initial, running);
            running = combine(running, storage_.values[i]);
        }
        if (inclusive && rank == X * Y * Z - 1) out = running;
        if (!inclusive && rank == 0 && initial != nullptr) out = *initial;
        total = running;
    }
    template <class F, class P> T scan_after(T value, T& out, F combine, P& prefix, bool inclusive, HOSTCUDA_LINE) {
        T total;
        scan(value, out, combine, nullptr, inclusive, total, line);
        const int rank = detail::block_rank();
        if (rank < 32) {
            const T before = prefix(total);
            if (rank == 0) storage_.prefix = before;
        }
        __syncthreads(line);
        return storage_.prefix;
    }
    template <int N, class F> static T of_items(T (&in)[N], F combine) {
        T all = in[0];
        for (int i = 1; i < N; ++i) all = combine(all, in[i]);
        return all;
    }
    // `in` and `out` may be the same array.
    template <int N, class F> static void run(T (&in)[N], T (&out)[N], F combine, const T* before, bool inclusive) {
        T running = before == nullptr ? in[0] : inclusive ? combine(*before, in[0]) : *before;
        for (int i = 0; i < N; ++i) {
            const T next = i + 1 < N || !inclusive ? in[inclusive ? i + 1 : i] : running;
            out[i] = running;
            running = combine(running, next);
        }
    }
    TempStorage& storage_;
};

}  // namespace cub

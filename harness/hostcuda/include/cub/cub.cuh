// The block-wide and warp-wide reductions and scans of CUB, and its device-wide sums, after CUB's documentation: the same results where it
// defines them, temporary storage in shared memory with the barriers it documents, so that reusing it too early is found.
// What is not here does not compile, and is reported as not emulated.
#ifndef HOSTCUDA_CUB_H
#define HOSTCUDA_CUB_H
#include "cuda_runtime.h"

#define CUB_VERSION 200800

namespace cub {

struct Sum { template <class T> T operator()(const T& a, const T& b) const { return a + b; } };
struct Max { template <class T> T operator()(const T& a, const T& b) const { return b > a ? b : a; } };
struct Min { template <class T> T operator()(const T& a, const T& b) const { return b < a ? b : a; } };
struct ArgMax {
    template <class P> P operator()(const P& a, const P& b) const { return b.value > a.value || (b.value == a.value && b.key < a.key) ? b : a; }
};
struct ArgMin {
    template <class P> P operator()(const P& a, const P& b) const { return b.value < a.value || (b.value == a.value && b.key < a.key) ? b : a; }
};
template <class Key, class Value> struct KeyValuePair {
    Key key;
    Value value;
};

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

namespace detail {
inline int block_rank() { return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)); }
}  // namespace detail

template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int = 0> class BlockReduce {
public:
    struct TempStorage { T values[X * Y * Z]; };
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

template <class T, int Lanes = 32, int = 0> class WarpReduce {
public:
    struct TempStorage { char unused; };
    explicit WarpReduce(TempStorage&) {}
    // The result is defined in the first lane of each logical warp.
    template <class F> T Reduce(T value, F combine, int valid, HOSTCUDA_LINE) {
        const unsigned lane = static_cast<unsigned>(hostcuda::lane_id()), first = lane - lane % Lanes;
        const unsigned mask = Lanes == 32 ? 0xffffffffu : ((1u << (Lanes & 31)) - 1u) << first;
        T all[32];
        hostcuda::warp_collective(hostcuda::WarpOperation::exchange, mask, &value, all, sizeof(T), 0, "cub::WarpReduce", line);
        T result = all[first];
        for (int i = 1; i < valid; ++i) result = combine(result, all[first + static_cast<unsigned>(i)]);
        return result;
    }
    template <class F> T Reduce(T value, F combine) { return Reduce(value, combine, Lanes); }
    T Sum(T value) { return Reduce(value, cub::Sum(), Lanes); }
    T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }
};

template <class T, int Lanes = 32, int = 0> class WarpScan {
public:
    struct TempStorage { char unused; };
    explicit WarpScan(TempStorage&) {}
    template <class F> void InclusiveScan(T value, T& out, F combine, T& total) {
        gather(value, "cub::WarpScan");
        out = total = all_[0];
        for (unsigned i = 1; i < Lanes; ++i) {
            total = combine(total, all_[i]);
            if (i <= rank_) out = total;
        }
    }
    template <class F> void InclusiveScan(T value, T& out, F combine) { T total; InclusiveScan(value, out, combine, total); }
    template <class F> void ExclusiveScan(T value, T& out, T initial, F combine, T& total) {
        gather(value, "cub::WarpScan");
        out = initial, total = all_[0];
        for (unsigned i = 0; i < rank_; ++i) out = combine(out, all_[i]);
        for (unsigned i = 1; i < Lanes; ++i) total = combine(total, all_[i]);
    }
    template <class F> void ExclusiveScan(T value, T& out, T initial, F combine) { T total; ExclusiveScan(value, out, initial, combine, total); }
    void InclusiveSum(T value, T& out) { InclusiveScan(value, out, cub::Sum()); }
    void InclusiveSum(T value, T& out, T& total) { InclusiveScan(value, out, cub::Sum(), total); }
    void ExclusiveSum(T value, T& out) { ExclusiveScan(value, out, T(0), cub::Sum()); }
    void ExclusiveSum(T value, T& out, T& total) { ExclusiveScan(value, out, T(0), cub::Sum(), total); }
    T Broadcast(T value, unsigned source) { return gather(value, "cub::WarpScan"), all_[source]; }

private:
    void gather(T value, const char* kind, HOSTCUDA_LINE) {
        const unsigned lane = static_cast<unsigned>(hostcuda::lane_id()), first = lane - lane % Lanes;
        const unsigned mask = Lanes == 32 ? 0xffffffffu : ((1u << (Lanes & 31)) - 1u) << first;
        T warp[32];
        hostcuda::warp_collective(hostcuda::WarpOperation::exchange, mask, &value, warp, sizeof(T), 0, kind, line);
        rank_ = lane - first;
        for (unsigned i = 0; i < Lanes; ++i) all_[i] = warp[first + i];
    }
    T all_[Lanes];
    unsigned rank_ = 0;
};

// `F` combines two values, `P` is given the block's total by the first warp and gives (from its first thread) what comes before the block.
template <class F, class T> concept Combines = std::is_invocable_r_v<T, F&, T, T>;
template <class P, class T> concept GivesPrefix = std::is_invocable_r_v<T, P&, T>;

template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0> class BlockScan {
public:
    struct TempStorage { T values[X * Y * Z]; T prefix; };
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

// Device-wide: called by the host, with the two calls of CUB's protocol (the first asks for the size of the temporary storage).
namespace detail {
template <class In, class Out, class N, class F, class T> cudaError_t reduce(void* storage, std::size_t& bytes, In in, Out out, N count, F combine, T initial) {
    if (storage == nullptr) return bytes = 1, cudaSuccess;
    for (N i = 0; i < count; ++i) initial = combine(initial, static_cast<T>(in[i]));
    *out = initial;
    return cudaSuccess;
}
template <class In, class Out, class N> cudaError_t scan(void* storage, std::size_t& bytes, In in, Out out, N count, bool inclusive) {
    if (storage == nullptr) return bytes = 1, cudaSuccess;
    std::decay_t<decltype(in[0])> running{};
    for (N i = 0; i < count; ++i) {
        const auto value = in[i];
        out[i] = inclusive ? running + value : running;
        running = running + value;
    }
    return cudaSuccess;
}
}  // namespace detail
struct DeviceReduce {
    template <class In, class Out, class N> static cudaError_t Sum(void* storage, std::size_t& bytes, In in, Out out, N count, cudaStream_t = nullptr) {
        return detail::reduce(storage, bytes, in, out, count, cub::Sum(), std::decay_t<decltype(*out)>{});
    }
    template <class In, class Out, class N> static cudaError_t Max(void* storage, std::size_t& bytes, In in, Out out, N count, cudaStream_t = nullptr) {
        using T = std::decay_t<decltype(*out)>;
        return detail::reduce(storage, bytes, in, out, count, cub::Max(), std::numeric_limits<T>::lowest());
    }
    template <class In, class Out, class N> static cudaError_t Min(void* storage, std::size_t& bytes, In in, Out out, N count, cudaStream_t = nullptr) {
        using T = std::decay_t<decltype(*out)>;
        return detail::reduce(storage, bytes, in, out, count, cub::Min(), std::numeric_limits<T>::max());
    }
    template <class In, class Out, class N, class F, class T>
    static cudaError_t Reduce(void* storage, std::size_t& bytes, In in, Out out, N count, F combine, T initial, cudaStream_t = nullptr) {
        return detail::reduce(storage, bytes, in, out, count, combine, initial);
    }
};
struct DeviceScan {
    template <class In, class Out, class N> static cudaError_t InclusiveSum(void* storage, std::size_t& bytes, In in, Out out, N count, cudaStream_t = nullptr) {
        return detail::scan(storage, bytes, in, out, count, true);
    }
    template <class In, class Out, class N> static cudaError_t ExclusiveSum(void* storage, std::size_t& bytes, In in, Out out, N count, cudaStream_t = nullptr) {
        return detail::scan(storage, bytes, in, out, count, false);
    }
};

}  // namespace cub
#endif

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

template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0> class BlockScan {
public:
    struct TempStorage { T values[X * Y * Z]; };
    explicit BlockScan(TempStorage& storage) : storage_(storage) {}
    template <class F> void InclusiveScan(T value, T& out, F combine, T& total) {
        const int rank = publish(value);
        T running = storage_.values[0];
        for (int i = 1; i <= rank; ++i) running = combine(running, storage_.values[i]);
        out = total = running;
        for (int i = rank + 1; i < X * Y * Z; ++i) total = combine(total, storage_.values[i]);
    }
    template <class F> void InclusiveScan(T value, T& out, F combine) { T total; InclusiveScan(value, out, combine, total); }
    template <class F> void ExclusiveScan(T value, T& out, T initial, F combine, T& total) {
        const int rank = publish(value);
        T running = initial;
        for (int i = 0; i < rank; ++i) running = combine(running, storage_.values[i]);
        out = running;
        total = storage_.values[0];
        for (int i = 1; i < X * Y * Z; ++i) total = combine(total, storage_.values[i]);
    }
    template <class F> void ExclusiveScan(T value, T& out, T initial, F combine) { T total; ExclusiveScan(value, out, initial, combine, total); }
    void InclusiveSum(T value, T& out) { InclusiveScan(value, out, cub::Sum()); }
    void InclusiveSum(T value, T& out, T& total) { InclusiveScan(value, out, cub::Sum(), total); }
    void ExclusiveSum(T value, T& out) { ExclusiveScan(value, out, T(0), cub::Sum()); }
    void ExclusiveSum(T value, T& out, T& total) { ExclusiveScan(value, out, T(0), cub::Sum(), total); }

private:
    int publish(T value, HOSTCUDA_LINE) {
        const int rank = detail::block_rank();
        storage_.values[rank] = value;
        __syncthreads(line);
        return rank;
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

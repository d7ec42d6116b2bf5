// Reductions of whole arrays.
#pragma once
#include "reductions.cuh"

namespace cub {

struct DeviceReduce {
    template <class In, class Out, class N, class F, class T>
    static cudaError_t Reduce(void* storage, std::size_t& bytes, In in, Out out, N count, F combine, T initial, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return detail::two_calls(storage, bytes, 1, "cub::DeviceReduce", stream, at, [=]() mutable { *out = detail::folded(in, N(0), count, combine, initial); });
    }
    template <class In, class Out, class N> static cudaError_t Sum(void* storage, std::size_t& bytes, In in, Out out, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return Reduce(storage, bytes, in, out, count, cub::Sum(), detail::output_of<Out, In>{}, stream, at);
    }
    template <class In, class Out, class N> static cudaError_t Max(void* storage, std::size_t& bytes, In in, Out out, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return Reduce(storage, bytes, in, out, count, cub::Max(), detail::lowest_of<detail::value_of<In>>(), stream, at);
    }
    template <class In, class Out, class N> static cudaError_t Min(void* storage, std::size_t& bytes, In in, Out out, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return Reduce(storage, bytes, in, out, count, cub::Min(), detail::largest_of<detail::value_of<In>>(), stream, at);
    }
    template <class In, class Out, class N, class F, class G, class T>
    static cudaError_t TransformReduce(void* storage, std::size_t& bytes, In in, Out out, N count, F combine, G change, T initial, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        using V = std::decay_t<std::invoke_result_t<G&, detail::value_of<In>>>;
        return Reduce(storage, bytes, TransformInputIterator<V, G, In>(in, change), out, count, combine, initial, stream, at);
    }
    // Both forms: a pair of position and value, or the two apart.
    template <class In, class Out> static cudaError_t ArgMax(void* storage, std::size_t& bytes, In in, Out out, int count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return extreme(storage, bytes, in, out, count, detail::Above(), detail::lowest_of<detail::value_of<In>>(), stream, at);
    }
    template <class In, class Out> static cudaError_t ArgMin(void* storage, std::size_t& bytes, In in, Out out, int count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return extreme(storage, bytes, in, out, count, detail::Below(), detail::largest_of<detail::value_of<In>>(), stream, at);
    }
    template <class In, class Out, class Index>
        requires(!std::is_arithmetic_v<Index>)
    static cudaError_t ArgMax(void* storage, std::size_t& bytes, In in, Out out, Index index, std::int64_t count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return extreme_apart(storage, bytes, in, out, index, count, detail::Above(), detail::lowest_of<detail::value_of<In>>(), stream, at);
    }
    template <class In, class Out, class Index>
        requires(!std::is_arithmetic_v<Index>)
    static cudaError_t ArgMin(void* storage, std::size_t& bytes, In in, Out out, Index index, std::int64_t count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return extreme_apart(storage, bytes, in, out, index, count, detail::Below(), detail::largest_of<detail::value_of<In>>(), stream, at);
    }
    // One value for each run of equal keys.
    template <class Keys, class Unique, class In, class Out, class Count, class F, class N>
    static cudaError_t ReduceByKey(void* storage, std::size_t& bytes, Keys keys, Unique unique, In in, Out out, Count runs, F combine, N count,
                                   cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return detail::two_calls(storage, bytes, 1, "cub::DeviceReduce", stream, at, [=]() mutable {
            N written = 0;
            for (N i = 0; i < count;) {
                const detail::value_of<Keys> key = keys[i];
                detail::Folder<detail::combined_of<F, detail::value_of<In>>, F> all(combine);
                all.push(static_cast<detail::value_of<In>>(in[i]));
                for (++i; i < count && keys[i] == key; ++i) all.push(static_cast<detail::value_of<In>>(in[i]));
                unique[written] = key;
                out[written++] = all.result();
            }
            *runs = written;
        });
    }

private:
    template <class In, class Out, class F, class T>
    static cudaError_t extreme(void* storage, std::size_t& bytes, In in, Out out, int count, F better, T worst, cudaStream_t stream, detail::At at) {
        return detail::two_calls(storage, bytes, 1, "cub::DeviceReduce", stream, at, [=]() mutable { *out = detail::extreme(in, 0, count, better, worst); });
    }
    template <class In, class Out, class Index, class F, class T>
    static cudaError_t extreme_apart(void* storage, std::size_t& bytes, In in, Out out, Index index, std::int64_t count, F better, T worst, cudaStream_t stream, detail::At at) {
        return detail::two_calls(storage, bytes, 1, "cub::DeviceReduce", stream, at, [=]() mutable {
            const auto best = detail::extreme(in, std::int64_t{0}, count, better, worst);
            *out = best.value, *index = best.key;
        });
    }
};

}  // namespace cub

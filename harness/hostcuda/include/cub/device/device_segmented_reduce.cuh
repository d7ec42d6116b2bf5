// Reductions of the segments of an array, each from its begin offset to its end offset.
#pragma once
#include "reductions.cuh"

namespace cub {

struct DeviceSegmentedReduce {
    template <class In, class Out, class N, class Begin, class End, class F, class T>
        requires(!std::is_arithmetic_v<Begin>)
    static cudaError_t Reduce(void* storage, std::size_t& bytes, In in, Out out, N segments, Begin begin, End end, F combine, T initial,
                              cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return detail::two_calls(storage, bytes, 1, "cub::DeviceSegmentedReduce", stream, at, [=]() mutable {
            for (N s = 0; s < segments; ++s) {
                const std::int64_t from = begin[s], to = end[s];
                out[s] = detail::folded(in, from, to, combine, initial);
            }
        });
    }
    template <class In, class Out, class N, class Begin, class End>
    static cudaError_t Sum(void* storage, std::size_t& bytes, In in, Out out, N segments, Begin begin, End end, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return Reduce(storage, bytes, in, out, segments, begin, end, cub::Sum(), detail::output_of<Out, In>{}, stream, at);
    }
    template <class In, class Out, class N, class Begin, class End>
    static cudaError_t Max(void* storage, std::size_t& bytes, In in, Out out, N segments, Begin begin, End end, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return Reduce(storage, bytes, in, out, segments, begin, end, cub::Max(), detail::lowest_of<detail::value_of<In>>(), stream, at);
    }
    template <class In, class Out, class N, class Begin, class End>
    static cudaError_t Min(void* storage, std::size_t& bytes, In in, Out out, N segments, Begin begin, End end, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return Reduce(storage, bytes, in, out, segments, begin, end, cub::Min(), detail::largest_of<detail::value_of<In>>(), stream, at);
    }
    // Pairs of position in the segment and value.
    template <class In, class Out, class N, class Begin, class End>
    static cudaError_t ArgMax(void* storage, std::size_t& bytes, In in, Out out, N segments, Begin begin, End end, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return extremes(storage, bytes, in, out, segments, begin, end, detail::Above(), detail::lowest_of<detail::value_of<In>>(), stream, at);
    }
    template <class In, class Out, class N, class Begin, class End>
    static cudaError_t ArgMin(void* storage, std::size_t& bytes, In in, Out out, N segments, Begin begin, End end, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return extremes(storage, bytes, in, out, segments, begin, end, detail::Below(), detail::largest_of<detail::value_of<In>>(), stream, at);
    }

private:
    template <class In, class Out, class N, class Begin, class End, class F, class T>
    static cudaError_t extremes(void* storage, std::size_t& bytes, In in, Out out, N segments, Begin begin, End end, F better, T worst, cudaStream_t stream, detail::At at) {
        return detail::two_calls(storage, bytes, 1, "cub::DeviceSegmentedReduce", stream, at, [=]() mutable {
            for (N s = 0; s < segments; ++s) {
                const std::int64_t from = begin[s], to = end[s];
                out[s] = detail::extreme(in, from, to, better, worst);
            }
        });
    }
};

}  // namespace cub

// Runs of equal items in an array: their values and lengths.
#pragma once
#include "two_calls.cuh"

namespace cub {

struct DeviceRunLengthEncode {
    template <class In, class Unique, class Lengths, class Count, class N>
    static cudaError_t Encode(void* storage, std::size_t& bytes, In in, Unique unique, Lengths lengths, Count runs, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return detail::two_calls(storage, bytes, 1, "cub::DeviceRunLengthEncode", stream, at, [=]() mutable {
            N written = 0;
            for (N i = 0; i < count;) {
                const detail::value_of<In> value = in[i];
                const N start = i;
                for (++i; i < count && in[i] == value; ++i) {}
                unique[written] = value;
                lengths[written++] = i - start;
            }
            *runs = written;
        });
    }
};

}  // namespace cub

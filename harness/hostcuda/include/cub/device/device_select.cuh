// Selections from whole arrays, in order: by a flag, by a predicate, one of each run; and partitions, which keep the others behind, in reverse.
#pragma once
#include "two_calls.cuh"

namespace cub {

struct DeviceSelect {
    template <class In, class Flags, class Out, class Count, class N>
    static cudaError_t Flagged(void* storage, std::size_t& bytes, In in, Flags flags, Out out, Count selected, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return detail::two_calls(storage, bytes, 1, "cub::DeviceSelect", stream, at, [=]() mutable {
            N kept = 0;
            for (N i = 0; i < count; ++i)
                if (flags[i]) out[kept++] = in[i];
            *selected = kept;
        });
    }
    template <class In, class Out, class Count, class N, class F>
        requires std::is_integral_v<N>
    static cudaError_t If(void* storage, std::size_t& bytes, In in, Out out, Count selected, N count, F wanted, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return detail::two_calls(storage, bytes, 1, "cub::DeviceSelect", stream, at, [=]() mutable {
            N kept = 0;
            for (N i = 0; i < count; ++i) {
                const detail::value_of<In> value = in[i];
                if (wanted(value)) out[kept++] = value;
            }
            *selected = kept;
        });
    }
    template <class In, class Out, class Count, class N>
        requires std::is_integral_v<N>
    static cudaError_t Unique(void* storage, std::size_t& bytes, In in, Out out, Count selected, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return detail::two_calls(storage, bytes, 1, "cub::DeviceSelect", stream, at, [=]() mutable {
            N kept = 0;
            detail::value_of<In> before{};
            for (N i = 0; i < count; ++i) {
                const detail::value_of<In> value = in[i];
                if (i == 0 || !(before == value)) out[kept++] = value;
                before = value;
            }
            *selected = kept;
        });
    }
    template <class Keys, class Values, class KeysOut, class ValuesOut, class Count, class N>
        requires std::is_integral_v<N>
    static cudaError_t UniqueByKey(void* storage, std::size_t& bytes, Keys keys, Values values, KeysOut keys_out, ValuesOut values_out, Count selected, N count,
                                   cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return detail::two_calls(storage, bytes, 1, "cub::DeviceSelect", stream, at, [=]() mutable {
            N kept = 0;
            detail::value_of<Keys> before{};
            for (N i = 0; i < count; ++i) {
                const detail::value_of<Keys> key = keys[i];
                if (i == 0 || !(before == key)) keys_out[kept] = key, values_out[kept++] = values[i];
                before = key;
            }
            *selected = kept;
        });
    }
};

struct DevicePartition {
    template <class In, class Flags, class Out, class Count, class N>
    static cudaError_t Flagged(void* storage, std::size_t& bytes, In in, Flags flags, Out out, Count selected, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return detail::two_calls(storage, bytes, 1, "cub::DevicePartition", stream, at, [=]() mutable {
            N kept = 0;
            for (N i = 0; i < count; ++i) {
                if (flags[i]) out[kept++] = in[i];
                else out[count - 1 - (i - kept)] = in[i];
            }
            *selected = kept;
        });
    }
    template <class In, class Out, class Count, class N, class F>
        requires std::is_integral_v<N>
    static cudaError_t If(void* storage, std::size_t& bytes, In in, Out out, Count selected, N count, F wanted, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return detail::two_calls(storage, bytes, 1, "cub::DevicePartition", stream, at, [=]() mutable {
            N kept = 0;
            for (N i = 0; i < count; ++i) {
                const detail::value_of<In> value = in[i];
                if (wanted(value)) out[kept++] = value;
                else out[count - 1 - (i - kept)] = value;
            }
            *selected = kept;
        });
    }
};

}  // namespace cub
